// SPDX-License-Identifier: MIT
// kernels/cuda/conv.cpp - the convolution slots on a GPU: brings tensors into a dtype and format that cuDNN has an
// algorithm for. Weights are f32 OIHW beside 16-bit activations: they are converted and permuted in one pass each call,
// and a gradient of theirs comes rounded to the activations' dtype, as cuDNN computes it.
// Read before: kernels/cuda/cudnn.h.
#include <vector>

#include "kernels/cuda/cudnn.h"
#include "kernels/cuda/slots.h"
#include "kernels/ops.h"
#include "kernels/packed_conv.h"

namespace brigade::cuda {

namespace {

// A dtype and format in which a convolution may be computed.
struct Way {
  DType dtype;
  MemoryFormat format;
};

// Best first. Tensor cores want 16-bit channels_last; f64 is there for contiguous tensors only; and f32 contiguous is
// what cuDNN does for every window.
std::vector<Way> ways(DType dtype, const Tensor& like) {
  const MemoryFormat own = like.memory_format(), contiguous = MemoryFormat::contiguous;
  const DType computed = computed_in(dtype);
  if (computed == DType::f64) return {{DType::f64, contiguous}};
  std::vector<Way> result;
  if (computed != DType::f32) {
    result.push_back({computed, MemoryFormat::channels_last});
    result.push_back({computed, contiguous});
  } else if (own != contiguous) {
    result.push_back({DType::f32, own});
  }
  result.push_back({DType::f32, contiguous});
  return result;
}

bool fits(const Tensor& t, Way way) {
  return t.dtype() == way.dtype && t.is_contiguous(way.format) &&
         reinterpret_cast<std::uintptr_t>(t.raw()) % 16 == 0;
}

Tensor empty_in(Way way, const Tensor& like) {
  return Tensor::empty(like.shape(), way.dtype, like.device(), way.format);
}

// `t` itself or a copy; what it holds, in dtype and format.
Tensor brought_into(Way way, const Tensor& t) {
  if (fits(t, way)) return t;
  Tensor result = empty_in(way, t);
  copy(t, result);
  return result;
}

// Computes `pass` in the first way that cuDNN takes. `out` is one of the three, given as the tensor that it is.
void convolve(ConvPass pass, const Tensor& x, const Tensor& w, const Tensor& y, const Window& window,
              double beta, Tensor& out) {
  // The largest tensor's format decides: it is the one that is dearest to convert.
  const Tensor& activation = pass == ConvPass::grad_weight ? x : out;
  for (const Way way : ways(activation.dtype(), activation)) {
    const ConvProblem problem =
        conv_problem(pass, way.dtype, way.format, x.shape(), w.shape(), y.shape(), window);
    if (cudnn_is_known_to_refuse(problem, out.device())) continue;
    const bool direct = fits(out, way);
    Tensor result = direct ? out : empty_in(way, out);
    const auto operand = [&](const Tensor& t, ConvPass written_by) {
      return pass == written_by ? result : brought_into(way, t);
    };
    if (!cudnn_convolve(problem, operand(x, ConvPass::grad_input), operand(w, ConvPass::grad_weight),
                        operand(y, ConvPass::forward), direct ? beta : 0))
      continue;
    if (direct) return;
    if (beta == 0) return copy(result, out);
    return binary(Binary::add, out, ops::cast(result, out.dtype()), out);
  }
  fail(str(name(pass), ": cuDNN has no algorithm that gives the same bits every time for x ", x.shape(),
           ", weight ", w.shape(), " and y ", y.shape(), " in ", activation.dtype()));
}

}  // namespace

void conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window, Tensor& out) {
  if (out.numel() == 0) return;
  convolve(ConvPass::forward, x, w, out, window, 0, out);
  if (!bias.defined()) return;
  const Tensor each = ops::cast(bias, out.dtype()).view({1, out.size(1), 1, 1}).expand(out.shape());
  binary(Binary::add, out, each, out);
}

// cuDNN's forward gives no moments: the batch norm behind takes its own.
void conv2d_with_moments(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window,
                         Tensor& out, ChannelMoments&) {
  conv2d(x, w, bias, window, out);
}

void conv2d_grad_input(const Tensor& dy, const Tensor& w, const Window& window, double beta, Tensor& dx) {
  if (dx.numel() == 0) return;
  convolve(ConvPass::grad_input, dx, w, dy, window, beta, dx);
}

void conv2d_grad_weight(const Tensor& dy, const Tensor& x, const Window& window, Tensor& dw) {
  if (dy.numel() == 0 || x.numel() == 0) return fill(dw, 0);
  convolve(ConvPass::grad_weight, x, dw, dy, window, 0, dw);
}

bool can_pack_conv2d(DType) { return false; }

std::unique_ptr<PackedConv> pack_conv2d(const PackedConvSpec&) {
  fail("pack_conv2d: packed convolutions are for the CPU; use conv2d on a GPU");
}

}  // namespace brigade::cuda
