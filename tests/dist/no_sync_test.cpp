// SPDX-License-Identifier: MIT
// tests/dist/no_sync_test.cpp - no_sync of several models, and scopes that outlive them (case A03). What no_sync
// does to the gradients of one model: ddp_test.cpp.
#include "autograd/engine.h"
#include "autograd/ops/arithmetic.h"
#include "dist/ddp.h"
#include "tests/support/ranks.h"
#include "tests/support/test.h"
#include "tests/support/training.h"

using namespace brigade;
using namespace brigade::dist;
using test::require;

TEST_CASE("no_sync of one model does not silence another", "[dist][ddp][ranks]") {
  test::for_each_world([&](ProcessGroup& group) {
    const auto a = test::toy_mlp(1), b = test::toy_mlp(2);
    Ddp ddp_a(a->named_parameters(), {}, group), ddp_b(b->named_parameters(), {}, group);
    const auto batch = test::toy_batch({16}, 24, group.rank(), group.size(), 5);
    const auto local = ddp_a.no_sync();
    backward(test::toy_loss(*b, batch));
    require(ddp_b.ledger().steps_recorded() == 1 && ddp_a.ledger().steps_recorded() == 0,
            "b synchronised, a did not");
  });
}

TEST_CASE("no_sync of one model leaves another alone however many came and went between",
          "[dist][ddp][ranks][A03]") {
  test::for_each_world([](ProcessGroup& group) {
    const auto one = test::toy_mlp(1), other = test::toy_mlp(2);
    Ddp first(one->named_parameters(), {}, group);
    for (int i = 0; i < 64; ++i) {
      const auto passing = test::toy_mlp(3);
      const Ddp gone(passing->named_parameters(), {}, group);
    }
    Ddp second(other->named_parameters(), {}, group);
    const auto local = first.no_sync();
    backward(test::toy_loss(*other, test::toy_batch({16}, 24, group.rank(), group.size(), 5)));
    test::require_same_on_all_ranks(test::copy_gradients(*other), group, "the other is synchronised");
  });
}

TEST_CASE("nested no_sync of two models around a forward silences both", "[dist][ddp][ranks][A03]") {
  test::for_each_world([&](ProcessGroup& group) {
    const auto a = test::toy_mlp(1), b = test::toy_mlp(2);
    Ddp ddp_a(a->named_parameters(), {}, group), ddp_b(b->named_parameters(), {}, group);
    const auto batch = test::toy_batch({16}, 24, group.rank(), group.size(), 5);
    const Variable loss = [&] {
      const auto outer = ddp_a.no_sync();
      const auto inner = ddp_b.no_sync();
      return test::toy_loss(*a, batch) + test::toy_loss(*b, batch);
    }();
    backward(loss * 0.5);
    require(ddp_a.ledger().steps_recorded() == 0 && ddp_b.ledger().steps_recorded() == 0, "both are silent");
  });
}

TEST_CASE("a no_sync scope may outlive its Ddp", "[dist][ddp][ranks]") {
  test::for_each_world([&](ProcessGroup& group) {
    const auto model = test::toy_mlp();
    auto ddp = std::make_unique<Ddp>(model->named_parameters(), std::vector<nn::NamedBuffer>{}, group);
    const auto scope = ddp->no_sync();
    ddp.reset();
  });
}
