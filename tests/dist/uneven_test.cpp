// SPDX-License-Identifier: MIT
// tests/dist/uneven_test.cpp - ranks with different amounts of data: weighted means, and ranks that run out of batches.
// Decisions that all ranks take together.
#include <cmath>

#include "autograd/engine.h"
#include "dist/ddp.h"
#include "kernels/ops.h"
#include "nn/optim/sgd.h"
#include "tests/support/ranks.h"
#include "tests/support/test.h"
#include "tests/support/training.h"

using namespace brigade;
using namespace brigade::dist;
using test::require;

namespace {

// Rows [begin, end) of the toy's data, as one batch.
test::ToyBatch rows(std::int64_t begin, std::int64_t end, std::uint64_t seed) {
  const auto all = test::toy_batch({16}, 64, 0, 1, seed);
  return {all.inputs.slice(0, begin, end), all.labels.slice(0, begin, end)};
}

// Rank r of p holds r + 1 samples, after those of the ranks before it.
std::int64_t first_row(int rank) { return rank * (rank + 1) / 2; }

}  // namespace

TEST_CASE("weights make the mean over ranks the mean over samples, for every strategy",
          "[dist][uneven][ranks]") {
  for (const Strategy& strategy : strategies())
    test::for_each_world([&](ProcessGroup& group) {
      const auto serial = test::toy_mlp();
      backward(test::toy_loss(*serial, rows(0, first_row(group.size()), 5)));
      const auto model = test::toy_mlp();
      Ddp ddp(model->named_parameters(), {}, group, {.strategy = std::string(strategy.name)});
      ddp.set_weight(group.rank() + 1);
      backward(test::toy_loss(*model, rows(first_row(group.rank()), first_row(group.rank() + 1), 5)));
      test::require_close(test::copy_gradients(*model), test::copy_gradients(*serial), 1e-6,
                          str(strategy.name));
      test::require_same_on_all_ranks(test::copy_gradients(*model), group, "weighted");
    });
}

TEST_CASE("a weight of zero leaves a rank's samples out, whatever they are", "[dist][uneven][ranks]") {
  test::for_each_world([&](ProcessGroup& group) {
    if (group.size() == 1) return;
    const auto serial = test::toy_mlp();
    backward(test::toy_loss(*serial, rows(0, 8, 5)));
    const auto model = test::toy_mlp();
    Ddp ddp(model->named_parameters(), {}, group);
    ddp.set_weight(group.rank() == 0 ? 1 : 0);
    backward(test::toy_loss(*model, rows(8 * group.rank(), 8 * (group.rank() + 1), 5)));
    test::require_close(test::copy_gradients(*model), test::copy_gradients(*serial), 1e-6, "rank 0's alone");
  });
}

TEST_CASE("weights that are all zero, negative or not finite are errors", "[dist][uneven][ranks][error]") {
  test::for_each_world([&](ProcessGroup& group) {
    const auto model = test::toy_mlp();
    Ddp ddp(model->named_parameters(), {}, group);
    test::require_contains(test::thrown_by([&] { ddp.set_weight(-1); }), "not negative; got -1");
    test::require_contains(test::thrown_by([&] { ddp.set_weight(std::nan("")); }), "must be finite");
    if (test::under_mpi()) return;  // The group is of no use afterwards.
    ddp.set_weight(0);
    // Nor does a rank whose gradient is lost anyway wait for the others.
    auto batch = rows(group.rank(), group.rank() + 1, 5);
    batch.inputs = ops::clone(batch.inputs);
    if (group.rank() == group.size() - 1) batch.inputs.data<float>()[0] = std::nanf("");
    test::require_contains(test::thrown_by([&] { backward(test::toy_loss(*model, batch)); }),
                           "the weights of all ranks are 0");
  });
}

TEST_CASE("ranks with fewer batches go on with the others until the last is done", "[dist][uneven][ranks]") {
  for (const char* strategy : {"bucketed", "flat"})
    test::for_each_world([&](ProcessGroup& group) {
      // Rank r has r + 1 batches of 4. Serially: in step s the mean over the ranks that still have one.
      const auto batch = [&](int rank, int step) {
        return rows(4 * (rank * 4 + step), 4 * (rank * 4 + step + 1), 9);
      };
      const auto serial = test::toy_mlp();
      optim::FlatParameters serial_parameters(serial->named_parameters());
      optim::Sgd serial_optimizer(serial_parameters, 0.1, {.momentum = 0.9});
      for (int step = 0; step < group.size(); ++step) {
        serial_parameters.zero_grad();
        const int having = group.size() - step;
        for (int rank = step; rank < group.size(); ++rank)
          backward(test::toy_loss(*serial, batch(rank, step)),
                   {.gradient = Tensor::from(std::vector<float>{1.0F / static_cast<float>(having)}, {})});
        serial_optimizer.step();
      }

      const auto model = test::toy_mlp();
      Ddp ddp(model->named_parameters(), {}, group, {.strategy = strategy});
      optim::Sgd optimizer(ddp.parameters(), 0.1, {.momentum = 0.9});
      int steps = 0;
      while (true) {
        ddp.parameters().zero_grad();
        if (steps <= group.rank())
          backward(test::toy_loss(*model, batch(group.rank(), steps)));
        else if (!ddp.backward_without_batch())
          break;
        optimizer.step();
        ++steps;
      }
      require(steps == group.size(), str("as many steps as the longest rank has batches; got ", steps));
      test::require_close(test::copy_values(*model), test::copy_values(*serial), 1e-6, strategy);
      test::require_same_on_all_ranks(test::copy_values(*model), group, strategy);
    });
}

TEST_CASE("gradients that a backward without a batch would lose are refused by name",
          "[dist][uneven][ranks][error]") {
  test::for_each_world([](ProcessGroup& group) {
    const auto model = test::toy_mlp();
    Ddp ddp(model->named_parameters(), {}, group);
    {
      const auto local = ddp.no_sync();
      backward(test::toy_loss(*model, rows(group.rank(), group.rank() + 1, 5)));
    }
    test::require_contains(test::thrown_by([&] { ddp.backward_without_batch(); }),
                           "\"2.bias\" has a gradient");
    ddp.parameters().zero_grad();
    require(!ddp.backward_without_batch(), "no rank has a batch");
  });
}

TEST_CASE("a rank without a batch is refused under synchronised batch norm", "[dist][uneven][ranks][error]") {
  test::for_each_world([](ProcessGroup& group) {
    const auto model = test::toy_mlp();
    Ddp ddp(model->named_parameters(), {}, group, {.buffers = BufferPolicy::sync_bn});
    test::require_contains(test::thrown_by([&] { ddp.backward_without_batch(); }),
                           "cannot take part in synchronised batch norm");
  });
}

TEST_CASE("what one rank proposes is agreed on every rank in the same step, once",
          "[dist][agreement][ranks]") {
  test::for_each_world([&](ProcessGroup& group) {
    const auto model = test::toy_mlp();
    Ddp ddp(model->named_parameters(), {}, group);
    for (int step = 0; step < 3; ++step) {
      if (step == 1 && group.rank() == group.size() - 1) ddp.propose(Decision::stop);
      if (step == 2 && group.rank() == 0) ddp.propose(Decision::save);
      ddp.parameters().zero_grad();
      backward(test::toy_loss(*model, rows(group.rank(), group.rank() + 1, 5)));
      require(ddp.agreed(Decision::stop) == (step == 1), str("stop in step 1; asked in step ", step));
      require(ddp.agreed(Decision::save) == (step == 2), str("save in step 2; asked in step ", step));
    }
  });
}
