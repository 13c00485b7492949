// SPDX-License-Identifier: MIT
// tests/dist/replanner_test.cpp - re-planning follows the network, on all ranks at the same step, and changes no bit.
#include "dist/replanner.h"

#include <thread>

#include "autograd/engine.h"
#include "dist/ddp.h"
#include "nn/optim/sgd.h"
#include "tests/support/ranks.h"
#include "tests/support/test.h"
#include "tests/support/training.h"

using namespace brigade;
using namespace brigade::dist;
using test::require;

namespace {

NetworkModel network(double latency_s, double bytes_per_s) {
  NetworkModel model;
  model.links = {{0, {latency_s, bytes_per_s}}};
  return model;
}

// Trains the toy for `steps` and returns its parameters. `seen` gets the number of buckets of each step.
std::vector<Tensor> train(ProcessGroup& group, const DdpOptions& options, int steps,
                          std::vector<std::size_t>& seen) {
  const auto model = test::toy_mlp(7);
  Ddp ddp(model->named_parameters(), {}, group, options);
  optim::Sgd optimizer(ddp.parameters(), 0.1, {.momentum = 0.9});
  seen.clear();
  for (int step = 0; step < steps; ++step) {
    ddp.parameters().zero_grad();
    const auto batch =
        test::toy_batch({16}, 24, group.rank(), group.size(), static_cast<std::uint64_t>(step));
    backward(test::toy_loss(*model, batch));
    optimizer.step();
    seen.push_back(ddp.plan().buckets.size());
  }
  return test::copy_values(*model);
}

}  // namespace

TEST_CASE("where latency dominates the planner fuses buckets, on all ranks at the same step",
          "[dist][replan][ranks]") {
  test::WorldOptions world;
  world.network = network(2e-3, 1e9);  // 4 ms a message, nothing for bytes: one bucket is best.
  test::for_each_world(
      [](ProcessGroup& group) {
        if (group.size() == 1) return;
        std::vector<std::size_t> seen;
        // Starts with one parameter a bucket.
        train(group, {.plan = {.rule = "auto", .caps = {.bytes = 1, .first_bytes = 1}}}, 8, seen);
        require(seen[0] == 4 && seen[2] == 4, "the first plan holds until measurements are agreed");
        require(seen[3] == 1, str("one bucket from step 4 on; got ", seen[3]));
        std::string mine;
        for (const std::size_t buckets : seen) mine += str(buckets, " ");
        for (const std::string& other : group.all_gather_text(mine))
          require(other == mine, "ranks switch together");
      },
      world);
}

TEST_CASE("with two ranks re-planning changes no bit of the result", "[dist][replan][ranks]") {
  test::WorldOptions world;
  world.network = network(1e-3, 1e9);
  test::for_each_world(
      [](ProcessGroup& group) {
        std::vector<std::size_t> seen;
        const DdpOptions fixed{.plan = {.caps = {.bytes = 1, .first_bytes = 1}}};
        DdpOptions planned = fixed;
        planned.plan.rule = "auto";
        planned.replan.period = 3;
        const auto expected = train(group, fixed, 12, seen);
        const auto got = train(group, planned, 12, seen);
        if (group.size() <= 2)
          test::require_same(got, expected, "re-planned");
        else
          test::require_close(got, expected, 1e-6, "re-planned");
      },
      world);
}

TEST_CASE("strategies with a plan of their own keep it whatever the rule", "[dist][replan][ranks]") {
  test::for_each_world([](ProcessGroup& group) {
    const auto model = test::toy_mlp();
    Ddp ddp(model->named_parameters(), {}, group, {.strategy = "flat", .plan = {.rule = "auto"}});
    require(ddp.plan().buckets.size() == 1, "flat");
    test::require_contains(test::thrown_by([&] { Replanner(group, {}, {.period = 2}); }), "at least 3 steps");
  });
}
