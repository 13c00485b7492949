// SPDX-License-Identifier: MIT
// models/resnet.h - residual networks with basic blocks (He et al., "Deep residual learning for image
// recognition", 2016), with torchvision's parameter names and initialisation.
// Read before: nn/conv2d.h, nn/batch_norm.h.
#pragma once

#include <array>
#include <memory>

#include "nn/batch_norm.h"
#include "nn/conv2d.h"
#include "nn/folded_net.h"
#include "nn/linear.h"
#include "nn/sequential.h"

namespace brigade::models {

/// What comes before the residual stages. imagenet: 7×7 stride 2 and max-pooling, a quarter of the side; cifar: 3×3
/// stride 1, the full side.
enum class Stem : std::uint8_t { cifar, imagenet };

/// Behind the imagenet stem's convolution.
inline constexpr Window kStemPool{.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}};

struct ResNetOptions {
  std::array<int, 4> blocks = {2, 2, 2, 2};  ///< Of each stage: ResNet-18. {3, 4, 6, 3} is ResNet-34.
  std::int64_t classes = 10;
  Stem stem = Stem::cifar;
  std::int64_t width = 64;       ///< Channels of the first stage; each further one doubles them.
  DType precision = DType::f32;  ///< Of activations; parameters, statistics and logits are f32.
  /// How activations lie in memory. Convolution in 16 bits needs channels_last to reach the matrix units.
  MemoryFormat format = MemoryFormat::channels_last;
  bool checkpoint_activations = false;  ///< Keep only the input of each block for backward.
};

/// relu(bn2(conv2(relu(bn1(conv1(x))))) + shortcut(x)); the shortcut is a 1×1 convolution and a batch norm where the
/// shape changes, else the identity.
class BasicBlock : public nn::Module {
 public:
  BasicBlock(std::int64_t in, std::int64_t out, std::int64_t stride);
  Variable forward(const Variable& x) override;
  /// Appends its steps on value `x`; returns the value they end with.
  int fold_into(nn::FoldedNet& net, int x) const;

 private:
  nn::Conv2d conv1_;
  nn::BatchNorm2d bn1_;
  nn::Conv2d conv2_;
  nn::BatchNorm2d bn2_;
  nn::Sequential downsample_;  // Empty: the identity.
};

/// x [N, 3, H, W] in any floating dtype and format -> logits f32 [N, classes].
/// Initial values: He-normal (fan out) convolutions, batch norms 1 and 0, PyTorch's default for `fc`.
class ResNet : public nn::Module {
 public:
  explicit ResNet(const ResNetOptions& options = {});
  Variable forward(const Variable& x) override;
  nn::FoldedNet folded() const;  ///< For inference: see models/fold.h.

 private:
  ResNetOptions options_;
  nn::Conv2d conv1_;
  nn::BatchNorm2d bn1_;
  std::array<nn::Sequential, 4> layers_;  // "layer1" … "layer4"
  nn::Linear fc_;
};

}  // namespace brigade::models
