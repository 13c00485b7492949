// SPDX-License-Identifier: MIT
// tests/models/resnet_test.cpp - sizes, names and shapes of residual networks.
#include "models/resnet.h"

#include "autograd/engine.h"
#include "autograd/ops/loss.h"
#include "kernels/ops.h"
#include "nn/optim/sgd.h"
#include "nn/state_dict.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;
using models::ResNet;
using models::ResNetOptions;
using models::Stem;

namespace {

/// Narrow and shallow: for what does not depend on width.
ResNetOptions small() { return {.blocks = {1, 1, 1, 1}, .classes = 5, .width = 16}; }

/// Loss and gradients of one batch, from the same initial values whatever the options.
struct Result {
  double loss;
  std::vector<Tensor> gradients;
  NamedTensors state;
};
Result run(const ResNetOptions& options) {
  default_generator() = {.seed = 5};
  ResNet model(options);
  const Variable loss =
      cross_entropy(model(test::random({4, 3, 16, 16}, 1)), Tensor::from<std::int64_t>({0, 1, 2, 3}, {4}));
  backward(loss);
  Result result{loss.item(), {}, {}};
  for (const Variable& p : model.parameters()) result.gradients.push_back(p.grad());
  for (const nn::NamedBuffer& b : model.named_buffers()) result.state.emplace_back(b.name, b.tensor);
  return result;
}

std::string differs(const Result& a, const Result& b, double tolerance) {
  for (std::size_t i = 0; i < a.gradients.size(); ++i) {
    const double scale = std::sqrt(ops::sum_of_squares(b.gradients[i]));
    const double error = std::sqrt(ops::sum_of_squares(ops::sub(a.gradients[i], b.gradients[i])));
    if (!(error <= tolerance * scale)) return str("gradient ", i, ": ", error, " of ", scale);
  }
  for (std::size_t i = 0; i < a.state.size(); ++i)
    if (const std::string d = test::differs(a.state[i].second, b.state[i].second, tolerance, tolerance);
        !d.empty())
      return str(a.state[i].first, ": ", d);
  return std::abs(a.loss - b.loss) <= tolerance * b.loss ? "" : str("loss ", a.loss, ", ", b.loss);
}

}  // namespace

TEST_CASE("ResNet-18 has torchvision's sizes", "[models][resnet]") {
  const ResNet cifar;
  CHECK(cifar.named_parameters().size() == 62);
  CHECK(count_parameters(cifar) == 11'173'962);
  CHECK(nn::state_dict(cifar).size() == 122);
  CHECK(count_parameters(ResNet({.stem = Stem::imagenet})) == 11'181'642);
  CHECK(count_parameters(ResNet({.classes = 1000, .stem = Stem::imagenet})) == 11'689'512);
}

TEST_CASE("ResNet-34 has torchvision's size", "[models][resnet]") {
  CHECK(count_parameters(ResNet({.blocks = {3, 4, 6, 3}, .classes = 1000, .stem = Stem::imagenet})) ==
        21'797'672);
}

TEST_CASE("parameters have torchvision's names and shapes", "[models][resnet]") {
  const ResNet model;
  const NamedTensors state = nn::state_dict(model);
  const auto at = [&](std::size_t i) { return str(state.at(i).first, " ", state.at(i).second); };
  CHECK(at(0) == "conv1.weight f32 [64, 3, 3, 3]");
  CHECK(at(1) == "bn1.weight f32 [64]");
  CHECK(at(5) == "bn1.num_batches_tracked i64 []");
  CHECK(at(6) == "layer1.0.conv1.weight f32 [64, 64, 3, 3]");
  const auto find = [&](const std::string& name) {
    for (const auto& [key, tensor] : state)
      if (key == name) return str(tensor);
    return std::string("absent");
  };
  CHECK(find("layer2.0.downsample.0.weight") == "f32 [128, 64, 1, 1]");
  CHECK(find("layer2.0.downsample.1.running_var") == "f32 [128]");
  CHECK(find("layer1.0.downsample.0.weight") == "absent");
  CHECK(find("layer4.1.bn2.bias") == "f32 [512]");
  CHECK(find("conv1.bias") == "absent");
  CHECK(at(120) == "fc.weight f32 [10, 512]");
  CHECK(at(121) == "fc.bias f32 [10]");
}

TEST_CASE("kernels start He-normal by fan out, and norms at one and zero", "[models][resnet]") {
  default_generator() = {.seed = 2};
  const ResNet model;
  for (const auto& [name, variable] : model.named_parameters()) {
    const Tensor& value = variable.value();
    CAPTURE(name);
    if (value.dims() == 4) {
      const double fan_out = static_cast<double>(value.size(0) * value.size(2) * value.size(3));
      // 1,728 draws at least: the standard deviation of a variance is under 3.4 %.
      CHECK_THAT(ops::sum_of_squares(value) / static_cast<double>(value.numel()),
                 Catch::Matchers::WithinRel(2 / fan_out, 0.15));
    } else if (name.find("bn") != std::string::npos) {
      CHECK(test::values(value) ==
            std::vector<double>(static_cast<std::size_t>(value.numel()), name.ends_with("weight") ? 1 : 0));
    }
  }
}

TEST_CASE("a forward gives f32 logits for any stem, size and precision", "[models][resnet]") {
  ResNetOptions options = small();
  for (const Stem stem : {Stem::cifar, Stem::imagenet})
    for (const DType precision : {DType::f32, DType::bf16}) {
      options.stem = stem;
      options.precision = precision;
      ResNet model(options);
      const Variable logits = model(test::random({2, 3, 40, 36}, 1));
      CHECK(logits.shape() == Shape{2, 5});
      CHECK(logits.dtype() == DType::f32);
    }
  ResNet model(options);
  REQUIRE_THROWS_WITH(model(Tensor::zeros({2, 1, 8, 8})),
                      ContainsSubstring("must be [N, 3, H, W]; got [2, 1, 8, 8]"));
}

TEST_CASE("memory format and checkpointing change neither gradients nor statistics", "[models][resnet]") {
  const Result plain = run(small());
  for (const Tensor& gradient : plain.gradients) REQUIRE(ops::sum_of_squares(gradient) > 0);
  ResNetOptions contiguous = small(), checkpointed = small();
  contiguous.format = MemoryFormat::contiguous;
  checkpointed.checkpoint_activations = true;
  CHECK(differs(run(contiguous), plain, 1e-4) == "");  // Other summation orders.
  CHECK(differs(run(checkpointed), plain, 1e-6) == "");
}

TEST_CASE("bf16 activations keep f32 parameters and give gradients close to f32's", "[models][resnet]") {
  ResNetOptions options = small();
  options.precision = DType::bf16;
  const Result half = run(options), full = run(small());
  for (const Tensor& gradient : half.gradients) REQUIRE(gradient.dtype() == DType::f32);
  // Eight bits of mantissa through six convolutions and their norms.
  CHECK(std::abs(half.loss - full.loss) < 0.02 * full.loss);
  CHECK(differs(half, full, 1e-6) != "");
}

TEST_CASE("a steady training step asks the system for no memory, and its peak does not grow",
          "[models][resnet]") {
  for (const DType precision : {DType::f32, DType::bf16})
    for (const Stem stem : {Stem::cifar, Stem::imagenet}) {
      INFO(name(precision) << (stem == Stem::cifar ? " cifar" : " imagenet"));
      ResNetOptions options = small();
      options.precision = precision, options.stem = stem;
      ResNet model(options);
      optim::FlatParameters parameters(model.named_parameters());
      optim::Sgd sgd(parameters, 0.01, {.momentum = 0.9});
      const Tensor images = test::random({4, 3, 32, 32}, 1),
                   labels = Tensor::from<std::int64_t>({0, 1, 2, 3}, {4});
      Runtime& memory = runtime({});
      // Peak bytes of one step, and calls to the system so far.
      const auto step = [&] {
        memory.reset_peak();
        parameters.zero_grad();
        backward(cross_entropy(model(images), labels));
        sgd.step();
        return std::pair(memory.memory_stats().peak_bytes, memory.memory_stats().system_allocations);
      };
      for (int i = 0; i < 2; ++i) static_cast<void>(step());
      const auto third = step();
      for (int i = 0; i < 4; ++i) REQUIRE(step() == third);
    }
}
