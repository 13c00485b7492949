// SPDX-License-Identifier: MIT
// kernels/cpu/conv_algorithms.h - all ways to compute a convolution on the CPU, and the choice between them. The
// choice looks at shapes only, in a table measured beforehand (conv_table.cpp) and in rules for what is not listed
// there: never at a clock, so every run and every rank computes the same bits.
// Read next: conv_algorithms.cpp, conv.cpp.
#pragma once

#include <span>
#include <string_view>

#include "kernels/kernels.h"

namespace brigade::cpu {

enum class ConvPass : std::uint8_t { forward, grad_input, grad_weight };
std::string_view name(ConvPass pass);

/// One pass of one convolution, as far as the choice of an algorithm goes.
struct ConvProblem {
  ConvPass pass;
  DType dtype;  ///< It is computed in: f32, f64 or bf16.
  std::int64_t images, in_channels, out_channels;
  std::int64_t in_size[2], out_size[2];
  Window window;
  bool channels_last;
  bool adds = false;           ///< grad_input: to what dx holds.
  bool takes_moments = false;  ///< forward: of its result.

  ConvProblem(ConvPass pass, const Tensor& x, const Tensor& y, const Window& window);
  std::int64_t out_pixels() const { return out_size[0] * out_size[1]; }
  bool is_strided() const { return window.stride[0] > 1 || window.stride[1] > 1; }
};

/// The functions take what the slots of the kernel table take, with activations dense and of one dtype that fits().
struct ConvAlgorithm {
  std::string_view name;
  bool (*fits)(const ConvProblem& problem);
  void (*forward)(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window, Tensor& out);
  /// As the slot conv2d_with_moments; null where it cannot.
  void (*forward_with_moments)(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window,
                               Tensor& out, ChannelMoments& moments);
  void (*grad_input)(const Tensor& dy, const Tensor& w, const Window& window, Tensor& dx);
  /// dx += the same, rounded once; null where it can only overwrite: the slot adds in another pass then.
  void (*add_grad_input)(const Tensor& dy, const Tensor& w, const Window& window, Tensor& dx);
  void (*grad_weight)(const Tensor& dy, const Tensor& x, const Window& window, Tensor& dw);
};

/// Those compiled in, each with a name of its own.
std::span<const ConvAlgorithm> conv_algorithms();

/// The one to use: from the table, else by rule.
const ConvAlgorithm& choose_conv(const ConvProblem& problem);

/// In its scope convolutions of this thread use the algorithm of that name wherever it fits: for tests and tuning.
/// Throws Error for an unknown name.
class ConvAlgorithmScope {
 public:
  explicit ConvAlgorithmScope(std::string_view name);
  ~ConvAlgorithmScope();
  ConvAlgorithmScope(const ConvAlgorithmScope&) = delete;
  ConvAlgorithmScope& operator=(const ConvAlgorithmScope&) = delete;

 private:
  const ConvAlgorithm* outer_;
};

/// A measured choice: square images and kernels, padding kernel / 2, no dilation, one group, channels_last.
struct ConvChoice {
  ConvPass pass;
  DType dtype;
  int in_channels, out_channels, in_size, kernel, stride, images;
  std::string_view algorithm;
};

/// Written by `bench_op --tune`, for processors with AMX.
std::span<const ConvChoice> measured_conv_choices();

}  // namespace brigade::cpu
