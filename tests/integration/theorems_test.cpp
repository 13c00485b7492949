// SPDX-License-Identifier: MIT
// tests/integration/theorems_test.cpp - what must hold for every strategy on every backend:
//   (1) p ranks on batch B/p equal one rank on batch B;
//   (2) after each step all ranks hold bit-identical parameters;
//   (3) strategy and bucket plan do not change the gradient (bitwise for two ranks);
//   (6) mismatched calls are reported with both ranks' operation and shape.
// Ranks always get different data: with equal data a missing all-reduce would go unnoticed.
#include "tests/support/theorems.h"

#include "autograd/engine.h"
#include "core/rng.h"
#include "dist/ddp.h"
#include "kernels/ops.h"
#include "models/gpt.h"
#include "tests/support/ranks.h"
#include "tests/support/test.h"
#include "tests/support/training.h"

using namespace brigade;
using namespace brigade::dist;

namespace {

std::vector<DdpOptions> all_options() {
  std::vector<DdpOptions> out;
  for (const Strategy& strategy : strategies()) out.push_back({.strategy = std::string(strategy.name)});
  for (const double cap : {1.0, 500.0, 2100.0, 1e9})
    out.push_back({.strategy = "bucketed", .plan = {.caps = {.bytes = cap, .first_bytes = cap / 2 + 0.5}}});
  for (const char* order : {"forward", "memory", "norm_first", "random:3"})
    out.push_back(
        {.strategy = "bucketed", .plan = {.order = order, .caps = {.bytes = 700, .first_bytes = 100}}});
  for (const char* rule : {"torch", "torch_rebuilt", "auto"})
    out.push_back({.strategy = "bucketed", .plan = {.rule = rule, .caps = {.bytes = 700}}});
  out.push_back({.plan = {.caps = {.bytes = 300, .first_bytes = 100}, .split = true}});
  out.push_back({.plan = {.caps = {.list = {64, 1000, 300}, .min_bytes = 80}}});
  return out;
}

std::string describe(const test::Subject& subject, const DdpOptions& options, const ProcessGroup& group) {
  return str(subject.name, ", ", options.strategy, ", plan ", options.plan.rule, ", order ",
             options.plan.order, ", cap ", options.plan.caps.bytes, ", ", group.size(), " ranks");
}

}  // namespace

TEST_CASE("theorem 1: p ranks on batch B/p equal one rank on batch B", "[integration][theorem][ranks]") {
  for (const test::Subject& subject : test::subjects())
    test::for_each_world([&](ProcessGroup& group) {
      for (const DdpOptions& options : all_options())
        test::require_serial_result(subject, group, test::with_ddp(options),
                                    describe(subject, options, group));
    });
}

TEST_CASE("theorem 2: after each step all ranks hold bit-identical parameters",
          "[integration][theorem][ranks]") {
  for (const test::Subject& subject : test::subjects())
    test::for_each_world([&](ProcessGroup& group) {
      for (const DdpOptions& options : all_options())
        test::require_equal_ranks(subject, group, test::with_ddp(options), describe(subject, options, group));
    });
}

TEST_CASE("theorem 2 holds for whatever travels, and theorem 1 for what travels exactly",
          "[integration][theorem][ranks]") {
  for (const test::Subject& subject : test::subjects())
    test::for_each_world([&](ProcessGroup& group) {
      for (const HookEntry& hook : comm_hooks())
        for (const char* strategy : {"flat", "bucketed"}) {
          const test::Synchronise with_hook =
              test::with_ddp({.strategy = strategy,
                              .plan = {.caps = {.bytes = 700, .first_bytes = 100}},
                              .hook = std::string(hook.name)});
          const std::string what = str(subject.name, ", ", strategy, ", hook ", hook.name);
          test::require_equal_ranks(subject, group, with_hook, what);
          if (hook.exact) test::require_serial_result(subject, group, with_hook, what);
        }
    });
}

TEST_CASE("theorem 1 holds wherever the sum is divided", "[integration][theorem][ranks]") {
  for (const test::Subject& subject : test::subjects())
    test::for_each_world([&](ProcessGroup& group) {
      for (const Divide divide : {Divide::before, Divide::after, Divide::split})
        test::require_serial_result(subject, group, test::with_ddp({.hook_options = {.divide = divide}}),
                                    "divide");
    });
}

TEST_CASE("theorem 3: with two ranks strategy and bucket plan do not change a bit",
          "[integration][theorem][ranks]") {
  for (const test::Subject& subject : test::subjects())
    test::for_each_world([&](ProcessGroup& group) {
      for (const DdpOptions& options : all_options())
        test::require_same_gradient(subject, group, test::with_ddp(options),
                                    test::with_ddp({.strategy = "naive"}), group.size() <= 2,
                                    describe(subject, options, group));
    });
}

TEST_CASE("theorems 1 and 2 on a transformer: layer norms, and a head tied to the embedding",
          "[integration][theorem][ranks]") {
  const auto make = [] {
    default_generator() = {.seed = 3};
    return std::make_unique<models::Gpt>(
        models::GptOptions{.vocabulary = 17, .context = 6, .layers = 2, .heads = 2, .width = 8});
  };
  // Sequences of rank r of p: rows [r n/p, (r + 1) n/p) of n.
  const auto tokens = [](int rank, int size) {
    std::vector<std::int64_t> ids;
    for (std::uint64_t i = 0; i < 12 * 6; ++i) ids.push_back(philox(5, 0, i)[0] % 17);
    return ops::clone(Tensor::from(ids, {12, 6}).slice(0, 12 / size * rank, 12 / size * (rank + 1)));
  };
  const auto alone = make();
  backward(models::next_token_loss(*alone, tokens(0, 1)));
  const auto expected = test::copy_gradients(*alone);
  test::for_each_world([&](ProcessGroup& group) {
    for (const DdpOptions& options : all_options()) {
      const auto model = make();
      Ddp ddp(model->named_parameters(), model->named_buffers(), group, options);
      backward(models::next_token_loss(*model, tokens(group.rank(), group.size())));
      const std::string what =
          str("gpt, ", options.strategy, ", plan ", options.plan.rule, ", ", group.size(), " ranks");
      test::require_close(test::copy_gradients(*model), expected, 1e-5, what);
      test::require_same_on_all_ranks(test::copy_gradients(*model), group, what);
    }
  });
}

TEST_CASE("theorem 3: algorithms that add ranks up in rank order keep every bit at any number of ranks",
          "[integration][theorem][ranks]") {
  // "naive" reduces on rank 0 in rank order: what --deterministic chooses.
  for (const test::Subject& subject : test::subjects())
    test::for_each_world(
        [&](ProcessGroup& group) {
          for (const DdpOptions& options : all_options())
            test::require_same_gradient(subject, group, test::with_ddp(options),
                                        test::with_ddp({.strategy = "flat"}), true,
                                        describe(subject, options, group));
        },
        {.algorithm = "naive"});
}

TEST_CASE("theorems 1 to 3 hold with parameters on a device, and on the CPU",
          "[integration][theorem][device]") {
  std::vector<DdpOptions> options;
  for (const Strategy& strategy : strategies()) options.push_back({.strategy = std::string(strategy.name)});
  options.push_back({.plan = {.caps = {.bytes = 500, .first_bytes = 250}, .split = true}});
  for (const test::Subject& subject : test::subjects())
    test::for_each_world(
        [&](ProcessGroup& group) {
          const test::Synchronise naive = test::with_ddp({.strategy = "naive"});
          for (const DdpOptions& o : options) {
            const std::string what = describe(subject, o, group);
            const test::Synchronise with = test::with_ddp(o);
            test::require_serial_result(subject, group, with, what);
            test::require_equal_ranks(subject, group, with, what);
            test::require_same_gradient(subject, group, with, naive, group.size() <= 2, what);
          }
        },
        {.sizes = subject.features.size() == 1 ? std::vector{2, 3}
                                               : std::vector{2}});  // Emulated devices are slow.
}

TEST_CASE("theorem 6: a rank that reduces something else is reported with both ranks' calls",
          "[integration][theorem][ranks][error]") {
  test::for_each_world([&](ProcessGroup& group) {
    if (group.size() == 1) return;
    // Rank 1 cuts its buckets differently, as a wrong flag on one host would make it.
    const auto model = test::toy_mlp();
    const std::string text = test::thrown_by([&] {
      Ddp ddp(model->named_parameters(), {}, group,
              {.strategy = group.rank() == 1 ? "flat" : "per_parameter"});
      backward(
          test::toy_loss(*model, test::toy_batch({16}, test::kGlobalBatch, group.rank(), group.size(), 1)));
    });
    // The roll call of the first backward finds it, before any bucket moves.
    for (const char* part : {"CommError", "the ranks are about to call different things",
                             "rank 1: expected strategy "
                             "per_parameter",
                             "got strategy flat"})
      test::require_contains(text, part);
  });
}
