// SPDX-License-Identifier: MIT
// tests/apps/captured_step_test.cpp - --cuda-graph: steps that the device repeats by itself are, to the bit, the steps
// that the host enqueues kernel by kernel.
#include "apps/common/captured_step.h"

#include "autograd/engine.h"
#include "autograd/ops/arithmetic.h"
#include "autograd/ops/loss.h"
#include "autograd/ops/pointwise.h"
#include "autograd/ops/shape_ops.h"
#include "core/rng.h"
#include "kernels/ops.h"
#include "models/mlp.h"
#include "nn/activations.h"
#include "nn/batch_norm.h"
#include "nn/conv2d.h"
#include "nn/linear.h"
#include "nn/optim/catalog.h"
#include "nn/pooling.h"
#include "nn/sequential.h"
#include "tests/support/ranks.h"
#include "tests/support/skip.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::test;
using apps::CapturedStep;

namespace {

bool no_gpu() { return device() != "cuda" || device_count(DeviceType::cuda) == 0; }

struct ConvNet final : nn::Module {
  ConvNet() : conv(3, 4, 3, {.padding = 1, .bias = false}), norm(4), pool(2), linear(4 * 2 * 2, 5) {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("pool", pool);
    register_module("linear", linear);
  }
  Variable forward(const Variable& x) override {
    const Variable y = pool(relu(norm(conv(x))));
    return linear(flatten(y));
  }
  nn::Conv2d conv;
  nn::BatchNorm2d norm;
  nn::MaxPool2d pool;
  nn::Linear linear;
};

struct Case {
  std::string model = "mlp", optimizer = "sgd";
  std::int64_t accumulate = 1;
  double clip_norm = 0;
  bool dropout = false;
  int steps = 9;
};

std::unique_ptr<nn::Module> make_model(const Case& c) {
  default_generator() = {.seed = 1};
  if (c.model == "conv") return std::make_unique<ConvNet>();
  if (!c.dropout)
    return std::make_unique<models::Mlp>(models::MlpOptions{.inputs = 48, .hidden = {8}, .classes = 5});
  auto net = std::make_unique<nn::Sequential>();
  net->emplace<nn::Linear>(48, 5);
  net->emplace<nn::Dropout>(0.5);
  return net;
}

data::Batch batch_of(const Case& c, int rank, int step, std::int64_t size) {
  const auto seed = static_cast<std::uint64_t>(100 * rank + step);
  Generator generator{.seed = seed};
  const Shape shape = c.dropout ? Shape{size, 48} : Shape{size, 3, 4, 4};
  std::vector<std::int64_t> labels, indices;
  for (std::int64_t i = 0; i < size; ++i) {
    labels.push_back((i + rank + step) % 5);
    indices.push_back(i);
  }
  return {.images = ops::randn(shape, generator), .labels = Tensor::from(labels, {size}), .indices = indices};
}

// Losses of all steps, then all parameters and buffers.
struct Outcome {
  std::vector<double> losses;
  std::vector<float> values;
  int repeated = 0;
};

struct Training {
  Training(dist::ProcessGroup& of, const Case& what, bool captures)
      : c(what), group(of), model(make_model(what)), checks(of.device()), to_device(of.device()) {
    model->to(group.device());
    ddp.emplace(model->named_parameters(), model->named_buffers(), group,
                dist::DdpOptions{.clip_norm = c.clip_norm, .check_every = 2});
    optimizer = optim::make_optimizer(c.optimizer, ddp->parameters(),
                                      {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01});
    if (captures) captured.emplace(*ddp, *optimizer, checks);
  }

  Tensor compute(const std::vector<data::Batch>& batches) {
    Tensor sum = Tensor::zeros({1}, DType::f64, group.device());
    const auto micro_step = [&](const data::Batch& batch) {
      const Variable out = (*model)(Variable(batch.images));
      const Variable loss = cross_entropy(out, batch.labels) * (1.0 / static_cast<double>(c.accumulate));
      ops::add_(sum, ops::cast(loss.value().view({1}), DType::f64));
      checks.judge();
      checks.fetch();
      backward(loss);
    };
    ddp->parameters().zero_grad();
    for (std::size_t i = 0; i + 1 < batches.size(); ++i) {
      const auto local = ddp->no_sync();
      micro_step(batches[i]);
    }
    micro_step(batches.back());
    const dist::Work mean = group.all_reduce(sum, dist::Reduce::mean, "loss");
    optimizer->step();
    mean.wait();
    return sum;
  }

  Tensor step(std::vector<data::Batch> batches, double lr) {
    const dist::StepScope recorded(ddp->ledger());
    optimizer->set_lr(lr);
    if (captured)
      return captured->run(batches, [this](const std::vector<data::Batch>& there) { return compute(there); });
    for (data::Batch& batch : batches) batch = to_device(batch);
    return compute(batches);
  }

  std::vector<data::Batch> batches(int number, std::int64_t size = 6) const {
    std::vector<data::Batch> out;
    for (int i = 0; i < c.accumulate; ++i) out.push_back(batch_of(c, group.rank(), 10 * number + i, size));
    return out;
  }

  Outcome run() {
    Outcome outcome;
    std::vector<Fetched> losses;
    for (int number = 0; number < c.steps; ++number) {
      // One of another size in between: it runs as it is.
      losses.emplace_back(step(batches(number, number == c.steps - 2 ? 4 : 6), 0.1 / (1 + number)));
      if (captured && captured->repeated()) ++outcome.repeated;
    }
    for (const Fetched& loss : losses) outcome.losses.push_back(loss.values<double>().front());
    ddp->sync_buffers();
    const auto keep = [&](const Tensor& t) {
      if (t.dtype() != DType::f32) return;
      for (const float value : t.to({}).to_vector<float>()) outcome.values.push_back(value);
    };
    for (const nn::NamedParameter& p : model->named_parameters()) keep(p.variable.value());
    for (const nn::NamedBuffer& b : model->named_buffers()) keep(b.tensor);
    return outcome;
  }

  Case c;
  dist::ProcessGroup& group;
  std::unique_ptr<nn::Module> model;
  LateChecks checks;
  apps::DeviceBatches to_device;
  std::optional<dist::Ddp> ddp;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::optional<CapturedStep> captured;
};

// Of worlds in which every rank has a GPU.
void on_own_gpus(const std::function<void(dist::ProcessGroup&)>& body) {
  for_each_world(
      [&](dist::ProcessGroup& group) {
        if (group.why_not_captured().empty()) body(group);
      },
      {.sizes = {1, 2}});
}

void same_as_uncaptured(const Case& c) {
  on_own_gpus([&](dist::ProcessGroup& group) {
    const std::string what = str(c.model, ", ", c.optimizer, ", accumulate ", c.accumulate);
    const Outcome plain = Training(group, c, false).run();
    const Outcome captured = Training(group, c, true).run();
    require(captured.repeated == c.steps - CapturedStep::kWarmUp - 1, what + ": steps were repeated");
    require(captured.losses == plain.losses, what + ": losses");
    require(captured.values == plain.values, what + ": parameters and buffers");
    require(plain.losses.front() != plain.losses.back(), what + ": something is learnt");
  });
}

}  // namespace

TEST_CASE("losses and parameters of captured steps are those of steps that are not, to the bit",
          "[captured][device]") {
  if (no_gpu()) return skip("needs BRIGADE_TEST_DEVICE=cuda and a device");
  for (const char* rule : {"sgd", "adamw", "lars"}) same_as_uncaptured({.optimizer = rule});
}

TEST_CASE("so are those of a convolutional net, with a clipped gradient", "[captured][device]") {
  if (no_gpu()) return skip("needs BRIGADE_TEST_DEVICE=cuda and a device");
  same_as_uncaptured({.model = "conv", .clip_norm = 0.5});
}

TEST_CASE("so are those of several backwards a step, with a clipped gradient", "[captured][device]") {
  if (no_gpu()) return skip("needs BRIGADE_TEST_DEVICE=cuda and a device");
  same_as_uncaptured({.optimizer = "adamw", .accumulate = 2, .clip_norm = 0.5});
}

TEST_CASE(
    "a label out of range in a captured step is told by its rank in the next one, and nothing is updated",
    "[captured][device][error]") {
  if (no_gpu()) return skip("needs BRIGADE_TEST_DEVICE=cuda and a device");
  on_own_gpus([](dist::ProcessGroup& group) {
    Training training(group, {}, true);
    int number = 0;
    for (; number < 6; ++number) training.step(training.batches(number), 0.1);
    const Tensor& value = training.ddp->parameters().at(0).variable.value();
    const Tensor before = value.to({});
    std::vector<data::Batch> wrong = training.batches(number);
    const bool mine = group.rank() == group.size() - 1;
    if (mine) wrong.front().labels.data<std::int64_t>()[2] = -3;
    training.step(wrong, 0.1);
    require_same(value.to({}), before, "unchanged");
    const std::string late = thrown_by([&] { training.step(training.batches(number + 1), 0.1); });
    if (mine)
      require_contains(late, "got label -3 at sample 2 with 5 classes");
    else
      require_contains(late, str("first on rank ", group.size() - 1));
  });
}

TEST_CASE("the first update of a parameter is not captured, as it would be repeated",
          "[captured][device][error]") {
  if (no_gpu()) return skip("needs BRIGADE_TEST_DEVICE=cuda and a device");
  Variable weight = Variable::parameter(test::empty({40}));
  optim::FlatParameters parameters({{"weight", weight}});
  const auto optimizer = optim::make_optimizer("sgd", parameters, {.lr = 0.1});
  weight.set_grad_present(true);
  optimizer->prepare_capture();
  const auto captures = [&] { return capture(test_device(), [&] { optimizer->step(); }); };
  REQUIRE_THROWS_WITH(captures(), ContainsSubstring("optimizer: the first update of \"weight\" is captured"));
  optimizer->step();
  REQUIRE(captures() != nullptr);
}

TEST_CASE("what cannot be captured is refused by name", "[captured][device][error]") {
  if (no_gpu()) return skip("needs BRIGADE_TEST_DEVICE=cuda and a device");
  for_each_world(
      [](dist::ProcessGroup& group) {
        if (group.why_not_captured().empty()) {
          Training training(group, {.dropout = true}, true);
          for (int number = 0; number < CapturedStep::kWarmUp; ++number)
            training.step(training.batches(number), 0.1);
          require_contains(thrown_by([&] { training.step(training.batches(9), 0.1); }),
                           "dropout: the host counts its random numbers");
          return;
        }
        require_contains(
            thrown_by([&] { Training(group, {}, true); }),
            "--cuda-graph: a captured step needs NCCL or one rank: here ");  // And how they travel.
      },
      {.sizes = {1, 2}});
}
