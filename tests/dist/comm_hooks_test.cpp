// SPDX-License-Identifier: MIT
// tests/dist/comm_hooks_test.cpp - every comm hook of the table: equal bits on all ranks, errors within what its
// encoding allows, bytes, state, and training (case A11). Ranks always have different gradients.
#include <cmath>
#include <functional>

#include "autograd/engine.h"
#include "dist/comm_hook.h"
#include "dist/scale.h"
#include "kernels/ops.h"
#include "nn/optim/sgd.h"
#include "tests/dist/hooked.h"
#include "tests/support/ranks.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"
#include "tests/support/training.h"

using namespace brigade;
using namespace brigade::dist;
using test::Exact;
using test::exact_mean;
using test::Hooked;
using test::minus;
using test::named;
using test::norm;
using test::require;

namespace {

// What a hook promises. Every hook of the table has a line here.
struct Promise {
  std::string_view name;
  // Bound of |result - mean| over the mean of the ranks' |contribution|, L2 norms, for normal numbers.
  double error;
  // Bytes of a matrix [400, 250] on N ranks, without headers and padding.
  double (*bytes)(double ranks);
  // Of hooks whose results depend on how buckets are cut.
  bool by_plan = false;
  // Of training: the loss over that of `none`, at most.
  double loss = 1;
  // Of hooks that keep errors (0: of others): what is missing of the sum of 200 means, and what is left unpaid of a
  // single one, at most.
  double late = 0, unpaid = 0;
};

constexpr double kElements = 1e5;

const Promise kPromises[] = {
    // Sums of up to four f32 are rounded three times, the mean once.
    {"none", 4 * 0x1p-24, [](double) { return 4 * kElements; }},
    // Half a unit in the last place, 2^-8 of a bf16 and 2^-11 of an f16, twice.
    {"bf16", 2.01 * 0x1p-8, [](double n) { return 2 * kElements * (1 + 1 / n); }, false, 1.01},
    {"f16", 2.01 * 0x1p-11, [](double n) { return 2 * kElements * (1 + 1 / n); }, false, 1.01},
    // Half a step, twice: 1/127 of the largest element, which is below 5 standard deviations.
    {"int8", 5.0 / 127, [](double n) { return kElements * (1 + 1 / n); }, true, 1.01},
    // Signs times the mean magnitude leave sqrt(1 - 2/pi) = 0.61 of normal numbers; signs of the vote, at most all of
    // what was voted, sqrt(2/pi) = 0.80. Bits pay slowly in the end: a bucket's scale is as small as its mean error.
    {"sign", 1.41, [](double n) { return kElements / 8 * (1 + 1 / n); }, true, 1.1, 0.1, 0.05},
    // The largest k of n have at least k/n of the sum of squares. An element waits for up to n/k = 100 steps.
    {"topk", 0.995, [](double) { return 8 * 0.01 * kElements; }, true, 1.1, 0.3, 1e-6},
    // A projection: never more than there was.
    {"powersgd", 1, [](double) { return 4 * 2 * (400.0 + 250.0); }, false, 1.1, 0.1, 1e-6},
    // What is dropped of an element, or kept too much, is at most the mean magnitude.
    {"sign_dropout", 1, [](double) { return 8 * kElements; }, false, 1.1},
};

const Promise& promise(std::string_view name) {
  for (const Promise& p : kPromises)
    if (p.name == name) return p;
  throw Error(str("the test has no line for comm hook ", name));
}

void for_each_hook(const std::function<void(ProcessGroup&, const HookEntry&, const Promise&)>& body,
                   const test::WorldOptions& options = {}) {
  test::for_each_world(
      [&](ProcessGroup& group) {
        for (const HookEntry& entry : comm_hooks()) body(group, entry, promise(entry.name));
      },
      options);
}

}  // namespace

TEST_CASE("every hook leaves the same bits on all ranks, an error within its bound, and alignment gaps zero",
          "[dist][hooks][ranks]") {
  const std::vector<std::vector<Shape>> buckets{{{0}},    {{1}},      {{17}},
                                                {{1000}}, {{40, 25}}, {{17}, {40, 25}, {1}}};
  for_each_hook([&](ProcessGroup& group, const HookEntry& entry, const Promise& promised) {
    for (const auto& shapes : buckets) {
      Hooked hooked(group, entry.name, shapes);
      for (std::uint64_t step = 0; step < 3; ++step) {
        hooked.fill(step);
        const Exact exact = exact_mean(group, hooked.flat());
        hooked.mean_of_all(static_cast<std::int64_t>(step));
        test::require_same_on_all_ranks({hooked.flat()}, group, str(entry.name));
        require(all_finite(hooked.flat()), "finite");
        if (step == 0) {  // Later, a hook that keeps errors adds them.
          const double error = norm(minus(test::values(hooked.flat()), exact.mean));
          require(error <= promised.error * exact.magnitude,
                  str(entry.name, ": error ", error, " of ", exact.magnitude));
        }
      }
      const std::vector<double> flat = test::values(hooked.flat());
      double everything = norm(flat), gradients = 0;
      for (int i = 0; i < hooked.parameters.count(); ++i)
        gradients = std::hypot(gradients, norm(test::values(hooked.gradient(i))));
      require(std::abs(everything - gradients) <= 1e-12 * everything, str(entry.name, ": gaps are zero"));
    }
  });
}

TEST_CASE("every hook makes zeros of zeros", "[dist][hooks][ranks]") {
  for_each_hook([](ProcessGroup& group, const HookEntry& entry, const Promise&) {
    Hooked hooked(group, entry.name, {{17}, {40, 25}});
    for (int step = 0; step < 2; ++step) {
      hooked.fill_zero();
      hooked.mean_of_all(step);
      require(norm(test::values(hooked.flat())) == 0, str(entry.name));
    }
  });
}

TEST_CASE("every hook hands as many bytes to collectives as it promises", "[dist][hooks][ranks]") {
  for_each_hook([](ProcessGroup& group, const HookEntry& entry, const Promise& promised) {
    Hooked hooked(group, entry.name, {{400, 250}});
    hooked.fill(1);
    const double bytes = static_cast<double>(hooked.mean_of_all().wire_bytes);
    const double expected = promised.bytes(group.size());
    // Slices are padded to 64 elements, and have headers of 64 bytes.
    const double padding = 64.0 * 3 * (group.size() + 1);
    require(bytes >= expected && bytes <= expected + padding, str(entry.name, ": ", bytes, " of ", expected));
  });
}

TEST_CASE("results do not depend on the bucket plan, but for hooks that say so", "[dist][hooks]") {
  for_each_hook([](ProcessGroup& group, const HookEntry& entry, const Promise& promised) {
    const std::vector<Shape> shapes{{17}, {40, 25}, {300}};
    Hooked whole(group, entry.name, shapes), cut(group, entry.name, shapes);
    for (std::uint64_t step = 0; step < 3; ++step) {
      whole.fill(step);
      cut.fill(step);
      whole.mean_of_all(static_cast<std::int64_t>(step));
      cut.mean({0, 1}, 0, 100, static_cast<std::int64_t>(step));  // Position 0 is p2 [300], in two parts.
      cut.mean({0, 1}, 100, 304, static_cast<std::int64_t>(step));
      cut.mean({1, 3}, static_cast<std::int64_t>(step));
    }
    const bool same = test::differs_bitwise(whole.flat(), cut.flat()).empty();
    require(same != promised.by_plan, str(entry.name));
  });
}

TEST_CASE("hooks that keep errors: what was applied over many steps approaches the sum of the means",
          "[dist][hooks]") {
  for_each_hook([](ProcessGroup& group, const HookEntry& entry, const Promise& promised) {
    if (promised.late == 0) return;
    // Every rank has its own constant gradient under noise as large: without feedback most of it would never arrive.
    Hooked hooked(group, entry.name, {{17}, {40, 25}});
    std::vector<double> applied, true_sum;
    for (int step = 0; step < 200; ++step) {
      for (int i = 0; i < 2; ++i) {
        const Shape shape = hooked.gradient(i).shape();
        Tensor g = Hooked::random(shape, group.rank(), static_cast<std::uint64_t>(1000 + 2 * step + i));
        hooked.set(i, ops::add(g, Hooked::random(shape, group.rank(), static_cast<std::uint64_t>(i))));
      }
      test::add(true_sum, exact_mean(group, hooked.flat()).mean);
      hooked.mean_of_all(step);
      test::add(applied, test::values(hooked.flat()));
    }
    const double missing = norm(minus(applied, true_sum)) / norm(true_sum);
    require(missing <= promised.late, str(entry.name, ": missing ", missing));
  });
}

TEST_CASE("hooks that keep errors: one kept under one bucket plan is paid out under another",
          "[dist][hooks]") {
  for_each_hook([](ProcessGroup& group, const HookEntry& entry, const Promise& promised) {
    if (promised.late == 0) return;
    Hooked hooked(group, entry.name, {{17}, {40, 25}, {300}});
    hooked.fill(1);
    const Exact exact = exact_mean(group, hooked.flat());
    hooked.mean_of_all();
    std::vector<double> applied = test::values(hooked.flat());
    const double first = norm(minus(applied, exact.mean)) / norm(exact.mean);
    for (int step = 1; step <= 300; ++step) {
      hooked.fill_zero();
      hooked.mean_of_each(step);
      test::add(applied, test::values(hooked.flat()));
    }
    const double missing = norm(minus(applied, exact.mean)) / norm(exact.mean);
    require(first > 0.1 && missing <= promised.unpaid,
            str(entry.name, ": ", first, " missing, then ", missing));
  });
}

TEST_CASE("PowerSGD gives matrices back whose rank is no more than its own", "[dist][hooks][ranks]") {
  test::for_each_world([](ProcessGroup& group) {
    Hooked hooked(group, "powersgd:3", {{40, 25}});
    const Tensor shared =
        test::random({40, 3}, 7);  // All ranks' columns lie in one space of three dimensions.
    for (int step = 0; step < 4; ++step) {
      hooked.set(0, ops::matmul(shared, Hooked::random({3, 25}, group.rank(), 1)));
      const Exact exact = exact_mean(group, hooked.flat());
      hooked.mean_of_all();
      const double error = norm(minus(test::values(hooked.flat()), exact.mean));
      // The first P is the image of a random Q, whose condition may cost digits; a warm start has those of f32.
      require(error <= (step == 0 ? 1e-2 : 1e-6) * exact.magnitude,
              str("step ", step, ": error ", error, " of ", exact.magnitude));
    }
  });
}

TEST_CASE("sign dropout keeps one sign of each element, and its expectation is the mean", "[dist][hooks]") {
  test::for_each_world([](ProcessGroup& group) {
    const int n = 64, steps = 2000;
    Hooked hooked(group, "sign_dropout", {{n}}, {.seed = 3});
    std::vector<double> positive(n), negative(n), sum;
    for (int rank = 0; rank < group.size(); ++rank) {
      const auto x = test::values(Hooked::random({n}, rank, 5));
      for (std::size_t i = 0; i < n; ++i) (x[i] > 0 ? positive : negative)[i] += x[i] / group.size();
    }
    for (int step = 0; step < steps; ++step) {
      hooked.fill(5);
      hooked.mean_of_all(step);
      const auto got = test::values(hooked.flat());
      for (std::size_t i = 0; i < n; ++i) {
        const double nearest = got[i] > 0 ? positive[i] : negative[i];
        require(std::abs(got[i] - nearest) <= 1e-6 * std::abs(nearest), str("element ", i, " is ", got[i]));
      }
      test::add(sum, got, 1.0 / steps);
    }
    for (std::size_t i = 0; i < n; ++i) {
      // The deviation of one draw is sqrt(P (1 - P)) times the distance of its two outcomes; five of the mean's.
      const double deviation = std::sqrt(-positive[i] * negative[i]);
      require(std::abs(sum[i] - positive[i] - negative[i]) <= 5 * deviation / std::sqrt(steps) + 1e-6,
              str("element ", i));
    }
  });
}

TEST_CASE("16-bit hooks neither overflow in the sum nor lose small gradients, but dividing before does",
          "[dist][hooks][ranks][A11]") {
  test::for_each_world([](ProcessGroup& group) {
    const auto result = [&](std::string_view name, float gradient, Divide divide) {
      Hooked hooked(group, name, {{100}}, {.divide = divide});
      hooked.set(0, ops::full({100}, gradient));
      require(hooked.mean_of_all().overflow == -1, "nothing overflows");
      return test::values(hooked.flat())[99];
    };
    for (const std::string_view name : {"none", "f16"})
      for (const float gradient : {30000.0f, 0x1p-24f})
        require(result(name, gradient, Divide::automatic) == gradient, str(name, " of ", gradient));
    if (group.size() > 1) require(result("f16", 0x1p-24f, Divide::before) == 0, "2^-24 / N is no f16");
    require(std::abs(result("f16", 30000, Divide::split) - 30000) <= 30000 * 0x1p-10, "split");
  });
}

TEST_CASE("f16 and bf16 name the first parameter that overflows, on the rank where it does",
          "[dist][hooks][ranks][A11]") {
  test::for_each_world([](ProcessGroup& group) {
    for (const auto& [name, large] : {std::pair{"f16", 65520.0f}, std::pair{"bf16", 3.4e38f}}) {
      Hooked hooked(group, name, {{17}, {40, 25}, {5}, {5}});
      hooked.fill(1);
      const bool mine = group.rank() == group.size() - 1;
      if (mine)
        for (const int position : {2, 3}) hooked.gradient(position).data<float>()[16] = large;
      require(hooked.mean_of_all().overflow == (mine ? 2 : -1), str(name, ": position of the overflow"));
      require(std::isinf(hooked.gradient(2).data<float>()[16]), "infinite on all ranks");
    }
  });
}

TEST_CASE("a gradient that is not finite on one rank shows on all, and is not remembered",
          "[dist][hooks][ranks]") {
  for_each_hook([](ProcessGroup& group, const HookEntry& entry, const Promise&) {
    for (const float bad : {NAN, INFINITY}) {
      const std::vector<Shape> shapes{{17}, {40, 25}};
      Hooked hooked(group, entry.name, shapes), fresh(group, entry.name, shapes);
      hooked.fill(1);
      if (group.rank() == group.size() - 1) hooked.gradient(0).data<float>()[999] = bad;
      hooked.mean_of_all();
      require(!all_finite(hooked.flat()), str(entry.name, ": hides ", bad));
      for (Hooked* h : {&hooked, &fresh}) {
        h->parameters.zero_grad();
        h->fill(2);
        h->mean_of_all();
      }
      test::require_same(hooked.flat(), fresh.flat(), str(entry.name, ": remembers ", bad));
    }
  });
}

TEST_CASE("training through any hook reaches a loss near that of exact means", "[dist][hooks]") {
  const auto train = [](ProcessGroup& group, const std::string& name) {
    const auto model = test::toy_mlp();
    optim::FlatParameters parameters(model->named_parameters());
    const auto hook = make_comm_hook(name, parameters);
    optim::Sgd sgd(parameters, 0.2);
    const auto mine = test::toy_batch({16}, 64, group.rank(), group.size(), 3);
    const auto all = test::toy_batch({16}, 64, 0, 1, 3);
    const double start = test::toy_loss(*model, all).value().item();
    for (int step = 0; step < 200; ++step) {
      parameters.zero_grad();
      backward(test::toy_loss(*model, mine));
      Tensor gradients = parameters.gradients(parameters.all());
      group
          .run({.operation = "hook",
                .tensor = gradients,
                .run =
                    [&](Transport& transport) {
                      HookBucket bucket{parameters, parameters.all(), 0, gradients.numel(), gradients, step};
                      hook->mean(bucket, transport);
                    }})
          .wait();
      sgd.step();
    }
    test::require_same_on_all_ranks(test::copy_values(*model), group, name);
    const double end = test::toy_loss(*model, all).value().item();
    require(end < 0.5 * start, str(name, ": loss ", start, " -> ", end));
    return end;
  };
  test::for_each_world(
      [&](ProcessGroup& group) {
        const double exact = train(group, "none");
        for (const HookEntry& entry : comm_hooks()) {
          const double loss = train(group, entry.name == "topk" ? "topk:0.1" : std::string(entry.name));
          require(loss <= promise(entry.name).loss * exact,
                  str(entry.name, ": loss ", loss, ", none ", exact));
        }
      },
      {.sizes = {2}});
}

TEST_CASE("names and numbers of hooks are checked", "[dist][hooks][error]") {
  const optim::FlatParameters parameters(named({{3}}));
  const auto make = [&](std::string_view name) { return make_comm_hook(name, parameters); };
  REQUIRE_NOTHROW(make("topk:0.001"));
  REQUIRE_NOTHROW(make("powersgd:4"));
  REQUIRE_THROWS_WITH(make("top"),
                      ContainsSubstring("unknown comm hook \"top\"; choose from none, bf16, f16, int8, "
                                        "sign, topk, powersgd, sign_dropout"));
  REQUIRE_THROWS_WITH(make("bf16:2"), ContainsSubstring("comm hook bf16: takes no number; got \"bf16:2\""));
  REQUIRE_THROWS_WITH(make("topk:much"), ContainsSubstring("\"much\" is not a number"));
  REQUIRE_THROWS_WITH(make("topk:"), ContainsSubstring("\"\" is not a number"));
  REQUIRE_THROWS_WITH(make("topk:1.5"), ContainsSubstring("the fraction must lie in (0, 1]; got 1.5"));
  REQUIRE_THROWS_WITH(make("topk:nan"), ContainsSubstring("(0, 1]"));
  REQUIRE_THROWS_WITH(make("powersgd:0"), ContainsSubstring("the rank must be at least 1; got 0"));
  REQUIRE_THROWS_WITH(make("powersgd:2.5"), ContainsSubstring("the rank must be a whole number; got 2.5"));
  const optim::FlatParameters wide({{"w", Variable::parameter(Tensor::zeros({3}, DType::f64))}});
  for (const HookEntry& entry : comm_hooks()) {
    if (entry.name == "none") continue;
    REQUIRE_THROWS_WITH(make_comm_hook(entry.name, wide),
                        ContainsSubstring("needs f32 parameters; got f64 \"w\""));
  }
}
