// SPDX-License-Identifier: MIT
// tests/nn/optimizers_test.cpp - optimizers against their formulas in double, written out element by element.
#include <array>
#include <cmath>
#include <functional>

#include "autograd/engine.h"
#include "kernels/ops.h"
#include "nn/optim/adamw.h"
#include "nn/optim/catalog.h"
#include "nn/optim/lars.h"
#include "nn/optim/sgd.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;
using optim::DecayOn;
using optim::FlatParameters;
using optim::Optimizer;

namespace {

constexpr int kSteps = 5;
// f32 arithmetic over five steps.
constexpr double kTolerance = 2e-6;

/// A matrix, a vector and a larger matrix, so that decay on matrices splits runs.
std::vector<nn::NamedParameter> make_parameters() {
  std::vector<nn::NamedParameter> out;
  const std::array shapes{Shape{3, 7}, Shape{21}, Shape{40, 30}};
  for (std::size_t i = 0; i < shapes.size(); ++i)
    out.push_back({str("p", i), Variable::parameter(test::random(shapes[i], i + 1))});
  return out;
}

Tensor gradient(std::size_t parameter, int step, const Shape& shape) {
  return test::random(shape, 100 + 10 * static_cast<std::uint64_t>(step) + parameter);
}

bool always(std::size_t, int) { return true; }
/// Parameter 1 is unused in the first two steps, parameter 2 in the fourth.
bool sometimes(std::size_t parameter, int step) {
  return !(parameter == 1 && step < 2) && !(parameter == 2 && step == 3);
}

using Presence = bool (*)(std::size_t parameter, int step);
using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(FlatParameters&)>;
using Cut = std::vector<optim::Range>;

/// Parameter values after kSteps steps; `cut` empty: step().
std::vector<Tensor> train(const MakeOptimizer& make, Presence present, const Cut& cut = {},
                          std::vector<int> order = {}) {
  auto parameters = make_parameters();
  FlatParameters flat(parameters, std::move(order));
  const auto optimizer = make(flat);
  for (int step = 0; step < kSteps; ++step) {
    flat.zero_grad();
    for (std::size_t i = 0; i < parameters.size(); ++i)
      if (present(i, step))
        backward(parameters[i].variable, {.gradient = gradient(i, step, parameters[i].variable.shape())});
    if (cut.empty())
      optimizer->step();
    else {
      optimizer->begin_step();
      for (const optim::Range range : cut) optimizer->update(range);
    }
  }
  std::vector<Tensor> out;
  for (const auto& p : parameters) out.push_back(p.variable.value());
  return out;
}

/// One parameter's state in double.
struct Reference {
  std::vector<double> p, first = {}, second = {};
  int updates = 0;
};
/// Advances by one step; `matrix`: has two dims.
using Formula = std::function<void(Reference& state, const std::vector<double>& g, bool matrix)>;

void check(const MakeOptimizer& make, const Formula& formula, Presence present = always) {
  const std::vector<Tensor> actual = train(make, present);
  const auto initial = make_parameters();
  for (std::size_t i = 0; i < initial.size(); ++i) {
    const Tensor start = initial[i].variable.value();
    Reference state{.p = test::values(start)};
    state.first.resize(state.p.size());
    state.second.resize(state.p.size());
    for (int step = 0; step < kSteps; ++step) {
      if (!present(i, step)) continue;
      formula(state, test::values(gradient(i, step, start.shape())), start.dims() == 2);
      ++state.updates;
    }
    CAPTURE(i);
    CHECK(test::differs(actual[i], Tensor::from(state.p, start.shape()), kTolerance, kTolerance) == "");
  }
}

Formula sgd_formula(double lr, const optim::SgdOptions& o) {
  return [=](Reference& s, const std::vector<double>& gradients, bool matrix) {
    const double decay = o.decay == DecayOn::all || matrix ? o.weight_decay : 0;
    for (std::size_t i = 0; i < s.p.size(); ++i) {
      const double g = gradients[i] + decay * s.p[i];
      double& buf = s.first[i];
      buf = s.updates == 0 ? g : o.momentum * buf + (1 - o.dampening) * g;
      s.p[i] -= lr * (o.momentum == 0 ? g : o.nesterov ? g + o.momentum * buf : buf);
    }
  };
}

MakeOptimizer sgd(double lr, const optim::SgdOptions& o) {
  return [=](FlatParameters& flat) { return std::make_unique<optim::Sgd>(flat, lr, o); };
}

const std::vector<optim::SgdOptions> kSgdVariants{
    {},
    {.weight_decay = 0.1},
    {.momentum = 0.9},
    {.momentum = 0.9, .dampening = 0.3, .weight_decay = 0.05},
    {.momentum = 0.9, .weight_decay = 0.05, .nesterov = true},
    {.momentum = 0.9, .weight_decay = 0.05, .decay = DecayOn::matrices},
};

const optim::AdamwOptions kAdamw{
    .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.1, .decay = DecayOn::matrices};

MakeOptimizer adamw() {
  return [](FlatParameters& flat) { return std::make_unique<optim::Adamw>(flat, 0.05, kAdamw); };
}
MakeOptimizer lars() {
  return [](FlatParameters& flat) {
    return std::make_unique<optim::Lars>(flat, 0.5, optim::LarsOptions{.weight_decay = 0.1, .trust = 0.02});
  };
}

}  // namespace

TEST_CASE("SGD follows its formula for every combination of its options", "[nn][optim]") {
  for (const optim::SgdOptions& o : kSgdVariants) check(sgd(0.1, o), sgd_formula(0.1, o));
}

TEST_CASE("SGD starts the momentum of a late parameter with its first gradient", "[nn][optim]") {
  for (const optim::SgdOptions& o : kSgdVariants) check(sgd(0.1, o), sgd_formula(0.1, o), sometimes);
}

TEST_CASE("AdamW follows its formula and counts each parameter's own updates", "[nn][optim]") {
  const auto formula = [](Reference& s, const std::vector<double>& g, bool matrix) {
    const double t = s.updates + 1, decay = matrix ? kAdamw.weight_decay : 0;
    for (std::size_t i = 0; i < s.p.size(); ++i) {
      s.p[i] *= 1 - 0.05 * decay;
      s.first[i] = kAdamw.beta1 * s.first[i] + (1 - kAdamw.beta1) * g[i];
      s.second[i] = kAdamw.beta2 * s.second[i] + (1 - kAdamw.beta2) * g[i] * g[i];
      const double m = s.first[i] / (1 - std::pow(kAdamw.beta1, t));
      const double v = s.second[i] / (1 - std::pow(kAdamw.beta2, t));
      s.p[i] -= 0.05 * m / (std::sqrt(v) + kAdamw.epsilon);
    }
  };
  check(adamw(), formula);
  check(adamw(), formula, sometimes);
}

TEST_CASE("LARS scales each matrix by its own trust ratio and leaves vectors to SGD", "[nn][optim]") {
  const auto norm = [](const std::vector<double>& x) {
    double squares = 0;
    for (const double v : x) squares += v * v;
    return std::sqrt(squares);
  };
  const auto formula = [&](Reference& s, const std::vector<double>& g, bool matrix) {
    const double decay = matrix ? 0.1 : 0;
    const double ratio = matrix ? 0.02 * norm(s.p) / (norm(g) + decay * norm(s.p)) : 1;
    for (std::size_t i = 0; i < s.p.size(); ++i) {
      s.first[i] = 0.9 * s.first[i] + ratio * (g[i] + decay * s.p[i]);
      s.p[i] -= 0.5 * s.first[i];
    }
  };
  check(lars(), formula);
  check(lars(), formula, sometimes);
}

TEST_CASE("updating in ranges gives the same bits as updating all, whatever the cut or order",
          "[nn][optim]") {
  std::vector<MakeOptimizer> makers{adamw(), lars()};
  for (const optim::SgdOptions& o : kSgdVariants) makers.push_back(sgd(0.1, o));
  for (const MakeOptimizer& make : makers) {
    const std::vector<Tensor> whole = train(make, sometimes);
    for (const Cut& cut : {Cut{{0, 1}, {1, 2}, {2, 3}}, Cut{{1, 3}, {0, 1}}, Cut{{2, 3}, {0, 0}, {0, 2}}})
      for (const std::vector<int>& order : {std::vector<int>{}, std::vector<int>{1, 0, 2}}) {
        const std::vector<Tensor> parts = train(make, sometimes, cut, order);
        for (std::size_t i = 0; i < whole.size(); ++i)
          REQUIRE(test::differs_bitwise(parts[i], whole[i]) == "");
      }
  }
}

TEST_CASE("a parameter without a gradient keeps value and state", "[nn][optim]") {
  auto parameters = make_parameters();
  FlatParameters flat(parameters);
  optim::Sgd optimizer(flat, 0.1, {.momentum = 0.9, .weight_decay = 0.1});
  const Tensor before = ops::clone(parameters[1].variable.value());
  backward(parameters[0].variable, {.gradient = gradient(0, 0, {3, 7})});
  optimizer.step();
  REQUIRE(test::differs_bitwise(parameters[1].variable.value(), before) == "");
  REQUIRE(optimizer.steps() == 1);
  const NamedTensors state = optimizer.state();
  REQUIRE(state.size() == 6);
  REQUIRE(state[1].first == "momentum.p1");
  REQUIRE(test::values(state[1].second) == std::vector<double>(21, 0));
  REQUIRE(state[3].first == "updates.p0");
  REQUIRE(state[3].second.item() == 1);
  REQUIRE(state[4].second.item() == 0);
}

TEST_CASE("copying the state into a fresh optimizer continues with the same bits", "[nn][optim]") {
  for (const std::string_view name : optim::optimizer_names()) {
    const auto run = [&](int change_at) {
      auto parameters = make_parameters();
      FlatParameters flat(parameters);
      const optim::OptimizerOptions options{.lr = 0.01, .weight_decay = 0.1};
      auto optimizer = optim::make_optimizer(name, flat, options);
      for (int step = 0; step < kSteps; ++step) {
        if (step == change_at) {
          auto fresh = optim::make_optimizer(name, flat, options);
          NamedTensors from = optimizer->state(), to = fresh->state();
          for (std::size_t i = 0; i < to.size(); ++i) ops::copy_(to[i].second, from[i].second);
          fresh->set_steps(optimizer->steps());
          optimizer = std::move(fresh);
        }
        flat.zero_grad();
        for (std::size_t i = 0; i < parameters.size(); ++i)
          backward(parameters[i].variable, {.gradient = gradient(i, step, parameters[i].variable.shape())});
        optimizer->step();
      }
      return ops::clone(flat.values(flat.all()));
    };
    CAPTURE(name);
    CHECK(test::differs_bitwise(run(3), run(-1)) == "");
  }
}

TEST_CASE("an update is noticed by a backward that saved the old value", "[nn][optim]") {
  auto parameters = make_parameters();
  FlatParameters flat(parameters);
  optim::Sgd optimizer(flat, 0.1);
  const std::uint64_t used = parameters[0].variable.value().version();
  const std::uint64_t unused = parameters[1].variable.value().version();
  backward(parameters[0].variable, {.gradient = gradient(0, 0, {3, 7})});
  optimizer.step();
  REQUIRE(parameters[0].variable.value().version() > used);
  REQUIRE(parameters[1].variable.value().version() == unused);
}

TEST_CASE("an update that a flag on the device forbids changes nothing and is not counted", "[nn][optim]") {
  for (const std::string_view name : {"sgd", "adamw", "lars"}) {
    INFO(name);
    // Steps 0 and 2 happen on both sides; in between one side is told to skip, and learns it afterwards.
    const auto train = [&](bool skips) {
      auto parameters = make_parameters();
      FlatParameters flat(parameters);
      const auto optimizer = optim::make_optimizer(name, flat, {.lr = 0.1, .momentum = 0.9});
      const Tensor flag = Tensor::zeros({1}, DType::i32);
      for (const int step : {0, 1, 2}) {
        if (step == 1 && !skips) continue;
        flat.zero_grad();
        for (std::size_t i = 0; i < parameters.size(); ++i)
          backward(parameters[i].variable, {.gradient = gradient(i, step, parameters[i].variable.shape())});
        *flag.data<std::int32_t>() = step == 1 ? 1 : 0;
        flat.set_skip(flag);
        optimizer->step();
        if (step == 1) flat.note_skipped_update();
      }
      return ops::clone(flat.values(flat.all()));
    };
    REQUIRE(test::differs_bitwise(train(true), train(false)).empty());
  }
}

TEST_CASE("optimizers refuse constants out of range and unknown names", "[nn][optim][error]") {
  auto parameters = make_parameters();
  FlatParameters flat(parameters);
  CHECK_THROWS_WITH(optim::Sgd(flat, -1), ContainsSubstring("lr must be at least 0; got -1"));
  CHECK_THROWS_WITH(optim::Sgd(flat, 1, {.nesterov = true}), ContainsSubstring("nesterov needs momentum"));
  CHECK_THROWS_WITH(optim::Sgd(flat, 1, {.momentum = 0.9, .dampening = 0.1, .nesterov = true}),
                    ContainsSubstring("no dampening"));
  CHECK_THROWS_WITH(optim::Sgd(flat, 1, {.momentum = -1}), ContainsSubstring("got momentum -1"));
  CHECK_THROWS_WITH(optim::Adamw(flat, 1, {.beta1 = 1}),
                    ContainsSubstring("betas must lie in [0, 1); got beta1 1"));
  CHECK_THROWS_WITH(optim::Adamw(flat, 1, {.epsilon = 0}), ContainsSubstring("epsilon must be positive"));
  CHECK_THROWS_WITH(optim::Lars(flat, 1, {.trust = 0}), ContainsSubstring("trust positive"));
  CHECK_THROWS_WITH(optim::make_optimizer("adam", flat, {}),
                    ContainsSubstring("unknown optimizer \"adam\"; choose from sgd, adamw, lars"));
}
