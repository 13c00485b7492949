// SPDX-License-Identifier: MIT
// kernels/ops_packed.cpp - checks around convolution for inference, and quantisation.
#include "core/span.h"
#include "kernels/ops_check.h"
#include "kernels/packed_conv.h"

namespace brigade::ops {
namespace {

bool is_byte(DType dtype) { return dtype == DType::u8 || dtype == DType::i8; }

void check_dtypes(const PackedConvSpec& s) {
  const bool floating = s.in == DType::f32 || s.in == DType::bf16;
  BRIGADE_CHECK(floating || is_byte(s.in), "pack_conv2d: activations are f32, bf16, u8 or i8; got ", s.in);
  BRIGADE_CHECK(kernels({}).can_pack_conv2d(s.in), "pack_conv2d: this processor has no fast arithmetic on ",
                s.in, " (bf16 needs AVX-512, int8 needs VNNI); use f32");
  BRIGADE_CHECK(
      floating ? s.out == s.in : is_byte(s.out) || s.out == DType::f32,
      "pack_conv2d: the output is of the input's dtype, or u8, i8 or f32 beside int8 input; got input ", s.in,
      " and output ", s.out);
  BRIGADE_CHECK(s.weight.dtype() == (floating ? DType::f32 : DType::i8), "pack_conv2d: weight must be ",
                floating ? DType::f32 : DType::i8, " beside ", s.in, " activations; got ", s.weight);
  const Shape channels{s.weight.size(0)};
  const auto is_channels = [&](const Tensor& t) {
    return t.defined() && t.shape() == channels && t.dtype() == DType::f32;
  };
  BRIGADE_CHECK(is_channels(s.bias), "pack_conv2d: bias must be f32 ", channels, "; got ", s.bias);
  BRIGADE_CHECK(floating ? !s.scale.defined() : is_channels(s.scale), "pack_conv2d: scale must be ",
                floating ? "undefined" : str("f32 ", channels), " beside ", s.in, " activations; got ",
                s.scale);
  if (s.residual)
    BRIGADE_CHECK(floating ? s.residual->dtype == s.out : is_byte(s.residual->dtype) && is_byte(s.out),
                  "pack_conv2d: a residual is of the output's dtype, or both are u8 or i8; got residual ",
                  s.residual->dtype, " and output ", s.out);
}

}  // namespace

std::unique_ptr<PackedConv> pack_conv2d(const PackedConvSpec& spec) {
  check_defined("pack_conv2d", spec.weight);
  const Shape& w = spec.weight.shape();
  const Window& window = spec.window;
  BRIGADE_CHECK(w.size() == 4 && w[2] == window.kernel[0] && w[3] == window.kernel[1],
                "pack_conv2d: weight must be [O, C / groups, ", window.kernel[0], ", ", window.kernel[1],
                "]; got ", w);
  BRIGADE_CHECK(window.groups >= 1 && w[0] % window.groups == 0,
                "pack_conv2d: groups must divide the output channels; got weight ", w, " and ", window.groups,
                " groups");
  check_dtypes(spec);
  const bool dilated = window.dilation[0] > 1 || window.dilation[1] > 1;
  BRIGADE_CHECK(!is_byte(spec.in) || window.groups == 1 || !dilated,
                "pack_conv2d: int8 takes groups or dilation, not both (oneDNN 2.6 gets it wrong); got ",
                window.groups, " groups and dilation ", window.dilation[0], " x ", window.dilation[1]);
  return kernels(spec.weight.device()).pack_conv2d(spec);
}

Tensor packed_conv2d(const PackedConv& conv, const Tensor& x, const Tensor& residual) {
  const PackedConvSpec& s = conv.spec();
  const Window& window = s.window;
  const Span span("packed_conv2d", [&] {
    return SpanDetails{{"x", x.shape()}, {"weight", s.weight.shape()}};
  });
  check_defined("packed_conv2d", x);
  BRIGADE_CHECK(x.dims() == 4 && x.dtype() == s.in, "packed_conv2d: x must be ", s.in, " [N, C, H, W]; got ",
                x);
  BRIGADE_CHECK(x.size(1) == s.weight.size(1) * window.groups, "packed_conv2d: x [N, C, H, W] and weight ",
                "[O, C / groups, kH, kW] must agree on C; got ", x.shape(), " and ", s.weight.shape(),
                " with ", window.groups, " groups");
  check_window("packed_conv2d", window, x.shape());
  const Shape shape{x.size(0), s.weight.size(0), window.out_size(0, x.size(2)),
                    window.out_size(1, x.size(3))};
  BRIGADE_CHECK(residual.defined() == s.residual.has_value(), "packed_conv2d: this one adds ",
                s.residual ? "a residual; got none" : "no residual; got one");
  Tensor out;
  if (residual.defined()) {
    BRIGADE_CHECK(residual.shape() == shape && residual.dtype() == s.residual->dtype &&
                      residual.is_contiguous(MemoryFormat::channels_last),
                  "packed_conv2d: the residual must be ", s.residual->dtype, " ", shape,
                  ", channels_last; got ", residual, " with strides ", residual.strides());
    out = residual.reinterpret(s.out);
    out.bump_version();
  } else {
    out = Tensor::empty(shape, s.out, x.device(), MemoryFormat::channels_last);
  }
  conv.run(contiguous(x, MemoryFormat::channels_last), out);
  return out;
}

Tensor quantize(const Tensor& x, double scale, DType dtype, MemoryFormat format) {
  const Span span("quantize");
  check_floating("quantize", x);
  BRIGADE_CHECK(is_byte(dtype), "quantize: to u8 or i8; got ", dtype);
  BRIGADE_CHECK(scale > 0, "quantize: scale must be positive; got ", scale);
  Tensor out = Tensor::empty(x.shape(), dtype, x.device(), format);
  kernels(x.device()).quantize(contiguous(cast(x, DType::f32), format), scale, out);
  return out;
}

}  // namespace brigade::ops
