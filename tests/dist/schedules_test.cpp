// SPDX-License-Identifier: MIT
// tests/dist/schedules_test.cpp - a thousand random schedules on thread ranks: each seed draws ranks, buckets,
// strategy, algorithm, unused parameters, the order in which each rank's gradients become ready, and delays on both of
// its threads. No schedule may hang, and none may change a bit.
// Read before: tests/support/bare_ddp.h. The exhaustive but smaller counterpart: tests/dist/interleaving_test.cpp.
#include <numeric>
#include <thread>

#include "core/rng.h"
#include "dist/algorithms/algorithms.h"
#include "dist/plan_makers.h"
#include "kernels/ops.h"
#include "tests/support/bare_ddp.h"
#include "tests/support/mutants.h"
#include "tests/support/ranks.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"
#include "tests/support/training.h"

using namespace brigade;
using namespace brigade::dist;

namespace {

constexpr int kData = 2;   // Different gradients, used in turn.
constexpr int kSteps = 6;  // The first kData steps are the reference: in order, without delays.

// Numbers drawn one after another. Streams: 0 the same on all ranks, 1 the world; then three for each rank.
class Draw {
 public:
  Draw(std::uint64_t seed, std::uint64_t stream) : seed_(seed), stream_(stream) {}
  int below(int limit) {
    return static_cast<int>(philox(seed_, stream_, next_++)[0] % static_cast<unsigned>(limit));
  }
  void sometimes_sleep() {
    if (below(8) == 0) std::this_thread::sleep_for(std::chrono::microseconds(below(300)));
  }

 private:
  std::uint64_t seed_, stream_, next_ = 0;
};
Draw draw_of(std::uint64_t seed, int rank, int which) {
  return {seed, static_cast<std::uint64_t>(2 + 3 * rank + which)};
}

// Sleeps on the communication stream before a bucket travels.
class LateHook final : public CommHook {
 public:
  LateHook(std::unique_ptr<CommHook> inner, Draw draw) : inner_(std::move(inner)), draw_(draw) {}
  HookReport mean(HookBucket& bucket, Transport& transport) override {
    if (bucket.step >= kData) draw_.sometimes_sleep();
    return inner_->mean(bucket, transport);
  }

 private:
  std::unique_ptr<CommHook> inner_;
  Draw draw_;
};

// The gradient of one rank in one data set; empty if it is unused there (one in ten).
Tensor gradient(std::uint64_t seed, int data, int rank, int position, std::int64_t numel) {
  const auto key = static_cast<std::uint64_t>(100 * (data + kData * rank) + position);
  if (philox(seed, 1'000, key)[0] % 10 == 0) return {};
  return test::random({numel}, seed * 10'000 + key);
}

void check_mean(std::uint64_t seed, int data, int size, const optim::FlatParameters& parameters) {
  for (int i = 0; i < parameters.count(); ++i) {
    const Tensor got = parameters.at(i).variable.grad_memory();
    Tensor sum = Tensor::zeros(got.shape());
    for (int rank = 0; rank < size; ++rank)
      if (const Tensor own = gradient(seed, data, rank, i, got.numel()); own.defined())
        sum = ops::add(sum, own);
    const Tensor mean = ops::mul(sum, 1.0 / size);
    if (size == 2)
      test::require_same(got, mean, str("gradient ", i, " is the mean of both ranks'"));
    else
      test::require(test::differs(got, mean, 1e-5, 1e-6).empty(),
                    str("gradient ", i, " is the mean of all ranks'"));
  }
}

// `mutant`, if any, takes the place of the strategy that the seed draws.
using MakeSync = std::unique_ptr<GradSync> (*)(BucketReducer& reducer);
void run_schedule(std::uint64_t seed, ProcessGroup& group, MakeSync mutant = nullptr) {
  Draw shared(seed, 0), own = draw_of(seed, group.rank(), 0);
  std::vector<std::int64_t> sizes;
  for (int i = 1 + shared.below(9); i > 0; --i) sizes.push_back(1 + shared.below(60));
  const Strategy& strategy =
      strategies()[static_cast<std::size_t>(shared.below(static_cast<int>(strategies().size())))];
  PlanOptions options;
  options.order = str("random:", shared.below(100));
  options.caps.list = {32.0 + shared.below(300)};
  options.split = shared.below(2) == 0;
  const auto parameters = test::bare_parameters(sizes);
  test::BareDdp ddp(group, parameters, strategy.plan(test::bare_infos(parameters), options),
                    {.sync = mutant != nullptr ? mutant : strategy.make,
                     .hook =
                         [&](const optim::FlatParameters& flat) {
                           return std::make_unique<LateHook>(make_comm_hook("none", flat),
                                                             draw_of(seed, group.rank(), 1));
                         },
                     .reducer = {.norms = shared.below(2) == 0}});

  std::vector<Tensor> results;
  for (int step = 0; step < kSteps; ++step) {
    const int data = step % kData, count = ddp.parameters().count();
    const bool random = step >= kData;
    std::vector<int> order(sizes.size());
    std::iota(order.begin(), order.end(), 0);
    for (int i = count - 1; random && i > 0; --i)
      std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(own.below(i + 1))]);

    ddp.parameters().zero_grad();
    std::vector<bool> used;
    for (int i = 0; i < count; ++i) {
      const auto numel = ddp.parameters().at(i).variable.value().numel();
      used.push_back(gradient(seed, data, group.rank(), i, numel).defined());
    }
    ddp.begin(used);
    for (const int i : order) {
      if (!used[static_cast<std::size_t>(i)]) continue;
      if (random) own.sometimes_sleep();
      Variable variable = ddp.parameters().at(i).variable;
      Tensor memory = variable.grad_memory();
      ops::copy_(memory, gradient(seed, data, group.rank(), i, memory.numel()));
      variable.set_grad_present(true);
      ddp.ready(i);
    }
    if (random) own.sometimes_sleep();
    ddp.finish();
    check_mean(seed, data, group.size(), ddp.parameters());
    results.push_back(ops::clone(ddp.parameters().gradients(ddp.parameters().all())));
    if (random)
      test::require_same(results.back(), results[static_cast<std::size_t>(data)],
                         "the schedule changes bits");
  }
  test::require_same_on_all_ranks(results, group, "after all steps");
}

test::WorldOptions world_of(std::uint64_t seed) {
  Draw draw(seed, 1);
  test::WorldOptions options;
  options.sizes = {2 + draw.below(3)};
  // Half of the worlds: the backend's own.
  const auto& all = algorithms();
  if (const int i = draw.below(2 * static_cast<int>(all.size())); i < static_cast<int>(all.size()))
    options.algorithm = all[static_cast<std::size_t>(i)].name;
  options.group.timeout = std::chrono::seconds(10);
  return options;
}

void run_seeds(std::uint64_t begin, std::uint64_t end) {
  for (std::uint64_t seed = begin; seed < end; ++seed) {
    INFO("seed " << seed);
    test::for_each_world([seed](ProcessGroup& group) { run_schedule(seed, group); }, world_of(seed));
  }
}

}  // namespace

TEST_CASE("no random schedule hangs or changes a bit: seeds 0 to 249", "[dist][schedules]") {
  run_seeds(0, 250);
}
TEST_CASE("no random schedule hangs or changes a bit: seeds 250 to 499", "[dist][schedules]") {
  run_seeds(250, 500);
}
TEST_CASE("no random schedule hangs or changes a bit: seeds 500 to 749", "[dist][schedules]") {
  run_seeds(500, 750);
}
TEST_CASE("no random schedule hangs or changes a bit: seeds 750 to 999", "[dist][schedules]") {
  run_seeds(750, 1000);
}

TEST_CASE("random schedules find a strategy that launches in completion order",
          "[dist][schedules][mutation]") {
  const MakeSync mutant = [](BucketReducer& reducer) -> std::unique_ptr<GradSync> {
    return std::make_unique<test::CompletionOrder>(reducer);
  };
  int found = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const test::WorldOptions options = world_of(seed);
    const LaunchOptions world{.backend = "threads",
                              .ranks = options.sizes[0],
                              .algorithm = options.algorithm,
                              .group = {.timeout = std::chrono::seconds(1)}};
    const std::string error = test::thrown_by(
        [&] { run_ranks(world, [&](ProcessGroup& group) { run_schedule(seed, group, mutant); }); });
    if (!error.empty()) ++found;
  }
  INFO("found by " << found << " of 20 seeds");
  REQUIRE(found >= 5);  // Others draw one bucket, or orders that happen to match.
}
