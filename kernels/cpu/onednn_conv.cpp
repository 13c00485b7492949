// SPDX-License-Identifier: MIT
// kernels/cpu/onednn_conv.cpp - the three convolution primitives. Weights go into the layout oneDNN wants
// (`any`), because only then does it reach its fast kernels; they change every step and are copied at every
// call. Activations keep their layout in direct convolution; Winograd's (Lavin and Gray, 2016) wants its own
// and is worth the copies.
#include <array>

#include "kernels/cpu/onednn.h"
#include "kernels/cpu/onednn_primitives.h"

namespace brigade::onednn {

namespace {

using dnnl::algorithm;
using dnnl::memory;

// Layout of `t`, dense in a format that `other` has as well (a tensor of one channel or one pixel has both):
// oneDNN's fast kernels want source and destination to agree.
memory::desc activation(const Tensor& t, const Tensor& other) {
  const auto wanted = MemoryFormat::channels_last;
  const bool last = t.is_contiguous(wanted) && other.is_contiguous(wanted);
  const Strides strides = dense_strides(t.shape(), last ? wanted : MemoryFormat::contiguous);
  return {memory::dims(t.shape().begin(), t.shape().end()), data_type(t.dtype()),
          memory::dims(strides.begin(), strides.end())};
}

// OIHW memory; with groups oneDNN counts them in a leading dim: [g, O / g, I / g, kH, kW].
memory::desc oihw(const Tensor& w, const Window& window) {
  memory::dims dims(w.shape().begin(), w.shape().end());
  if (window.groups == 1) return {dims, memory::data_type::f32, memory::format_tag::oihw};
  dims[0] /= window.groups;
  dims.insert(dims.begin(), window.groups);
  return {dims, memory::data_type::f32, memory::format_tag::goihw};
}

memory::desc any(const memory::desc& desc, memory::data_type type) {
  return {desc.dims(), type, memory::format_tag::any};
}

memory::desc bias_desc(std::int64_t size) { return {{size}, memory::data_type::f32, memory::format_tag::x}; }

// One convolution; x, w and y as they lie in our memory.
struct Problem {
  memory::desc x, w, y;
  bool has_bias;
  Window window;
  ConvMethod method;

  memory::dims strides() const { return {window.stride[0], window.stride[1]}; }
  // oneDNN counts the holes of a dilated kernel: 0 is a dense one.
  memory::dims dilates() const { return {window.dilation[0] - 1, window.dilation[1] - 1}; }
  // At both sides; the output size decides how much of the far side is read.
  memory::dims padding() const { return {window.padding[0], window.padding[1]}; }

  memory::desc weights() const { return any(w, x.data_type()); }
  memory::desc source() const { return method == ConvMethod::direct ? x : any(x, x.data_type()); }
  memory::desc target() const { return method == ConvMethod::direct ? y : any(y, y.data_type()); }
  algorithm how() const {
    return method == ConvMethod::winograd ? algorithm::convolution_winograd : algorithm::convolution_direct;
  }
};

Packing packing(const dnnl::engine& engine, const memory::desc& from, const memory::desc& to,
                const memory::desc& inside) {
  return {inside, from == to ? dnnl::reorder() : dnnl::reorder({engine, from, engine, to})};
}
Packing read(const dnnl::engine& engine, const memory::desc& plain, const memory::desc& inside) {
  return packing(engine, plain, inside, inside);
}
Packing written(const dnnl::engine& engine, const memory::desc& plain, const memory::desc& inside) {
  return packing(engine, inside, plain, inside);
}

// forward_training differs from forward_inference in nothing for a convolution.
dnnl::convolution_forward::primitive_desc forward_desc(const dnnl::engine& engine, const Problem& p,
                                                       bool has_bias) {
  using Forward = dnnl::convolution_forward;
  const auto kind = dnnl::prop_kind::forward_training;
  const auto desc = has_bias ? Forward::desc(kind, p.how(), p.source(), p.weights(), bias_desc(p.y.dims()[1]),
                                             p.target(), p.strides(), p.dilates(), p.padding(), p.padding())
                             : Forward::desc(kind, p.how(), p.source(), p.weights(), p.target(), p.strides(),
                                             p.dilates(), p.padding(), p.padding());
  return {desc, attributes(), engine};
}

Primitive forward(const dnnl::engine& engine, const Problem& p) {
  const auto pd = forward_desc(engine, p, p.has_bias);
  return {dnnl::convolution_forward(pd),
          pd.scratchpad_desc(),
          {read(engine, p.x, pd.src_desc()), read(engine, p.w, pd.weights_desc()),
           written(engine, p.y, pd.dst_desc())}};
}

// Both backward primitives want the forward one as a hint.
Primitive backward_data(const dnnl::engine& engine, const Problem& p) {
  using Backward = dnnl::convolution_backward_data;
  const Backward::primitive_desc pd(
      {p.how(), p.source(), p.weights(), p.target(), p.strides(), p.dilates(), p.padding(), p.padding()},
      attributes(), engine, forward_desc(engine, p, false));
  return {Backward(pd),
          pd.scratchpad_desc(),
          {read(engine, p.y, pd.diff_dst_desc()), read(engine, p.w, pd.weights_desc()),
           written(engine, p.x, pd.diff_src_desc())}};
}

// The gradient leaves in f32 also for bf16 activations: it is added to others and to f32 weights.
Primitive backward_weights(const dnnl::engine& engine, const Problem& p) {
  using Backward = dnnl::convolution_backward_weights;
  const Backward::primitive_desc pd({p.how(), p.source(), any(p.w, memory::data_type::f32), p.target(),
                                     p.strides(), p.dilates(), p.padding(), p.padding()},
                                    attributes(), engine, forward_desc(engine, p, false));
  return {Backward(pd),
          pd.scratchpad_desc(),
          {read(engine, p.x, pd.src_desc()), read(engine, p.y, pd.diff_dst_desc()),
           written(engine, p.w, pd.diff_weights_desc())}};
}

using Make = Primitive (*)(const dnnl::engine&, const Problem&);

const Primitive& find(Context& context, Key::Op op, Problem p, Make make) {
  Key key(op);
  key.add(p.x).add(p.y).add(p.window).add(p.has_bias).add(static_cast<std::int64_t>(p.method));
  return context.find(std::move(key), [&] {
    if (p.method == ConvMethod::winograd) {
      try {
        return make(context.engine(), p);
      } catch (const dnnl::error&) {
        p.method = ConvMethod::direct;  // This processor has no Winograd kernel for the shape.
      }
    }
    return make(context.engine(), p);
  });
}

struct Operand {
  int argument;
  const memory::desc& plain;
  const Tensor& tensor;
};

// Copies what is read into the primitive's layouts, runs it, and copies the result out.
void run(Context& context, const Primitive& p, const std::array<Operand, 3>& operands,
         std::unordered_map<int, memory> arguments = {}) {
  constexpr std::size_t kResult = 2;
  Tensor packed[3];
  for (std::size_t i = 0; i < 3; ++i) {
    const Operand& operand = operands[i];
    const Packing& packing = p.operands[i];
    memory plain = context.memory(operand.plain, operand.tensor);
    if (!packing.reorder) {
      arguments.emplace(operand.argument, plain);
      continue;
    }
    packed[i] = bytes_for(packing.desc);
    memory inside = context.memory(packing.desc, packed[i]);
    if (i != kResult) context.run(packing.reorder, plain, inside);
    arguments.emplace(operand.argument, inside);
  }
  context.run(p, std::move(arguments));
  if (p.operands[kResult].reorder) {
    memory inside = context.memory(p.operands[kResult].desc, packed[kResult]);
    memory plain = context.memory(operands[kResult].plain, operands[kResult].tensor);
    context.run(p.operands[kResult].reorder, inside, plain);
  }
}

}  // namespace

template <ConvMethod method>
void conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window, Tensor& out) {
  Context& context = Context::of_this_thread();
  const Problem p{activation(x, out), oihw(w, window), activation(out, x), bias.defined(), window, method};
  std::unordered_map<int, memory> arguments;
  if (bias.defined()) arguments.emplace(DNNL_ARG_BIAS, context.memory(bias_desc(bias.numel()), bias));
  run(context, find(context, Key::Op::conv, p, forward),
      {{{DNNL_ARG_SRC, p.x, x}, {DNNL_ARG_WEIGHTS, p.w, w}, {DNNL_ARG_DST, p.y, out}}}, std::move(arguments));
}

template <ConvMethod method>
void conv2d_grad_input(const Tensor& dy, const Tensor& w, const Window& window, Tensor& dx) {
  Context& context = Context::of_this_thread();
  const Problem p{activation(dx, dy), oihw(w, window), activation(dy, dx), false, window, method};
  run(context, find(context, Key::Op::conv_grad_input, p, backward_data),
      {{{DNNL_ARG_DIFF_DST, p.y, dy}, {DNNL_ARG_WEIGHTS, p.w, w}, {DNNL_ARG_DIFF_SRC, p.x, dx}}});
}

template <ConvMethod method>
void conv2d_grad_weight(const Tensor& dy, const Tensor& x, const Window& window, Tensor& dw) {
  Context& context = Context::of_this_thread();
  const Problem p{activation(x, dy), oihw(dw, window), activation(dy, x), false, window, method};
  run(context, find(context, Key::Op::conv_grad_weight, p, backward_weights),
      {{{DNNL_ARG_SRC, p.x, x}, {DNNL_ARG_DIFF_DST, p.y, dy}, {DNNL_ARG_DIFF_WEIGHTS, p.w, dw}}});
}

template void conv2d<ConvMethod::direct>(const Tensor&, const Tensor&, const Tensor&, const Window&, Tensor&);
template void conv2d<ConvMethod::blocked>(const Tensor&, const Tensor&, const Tensor&, const Window&,
                                          Tensor&);
template void conv2d<ConvMethod::winograd>(const Tensor&, const Tensor&, const Tensor&, const Window&,
                                           Tensor&);
template void conv2d_grad_input<ConvMethod::direct>(const Tensor&, const Tensor&, const Window&, Tensor&);
template void conv2d_grad_input<ConvMethod::blocked>(const Tensor&, const Tensor&, const Window&, Tensor&);
template void conv2d_grad_input<ConvMethod::winograd>(const Tensor&, const Tensor&, const Window&, Tensor&);
template void conv2d_grad_weight<ConvMethod::direct>(const Tensor&, const Tensor&, const Window&, Tensor&);
template void conv2d_grad_weight<ConvMethod::blocked>(const Tensor&, const Tensor&, const Window&, Tensor&);
template void conv2d_grad_weight<ConvMethod::winograd>(const Tensor&, const Tensor&, const Window&, Tensor&);

// The limit is 16 channels with AVX-512 and 8 with AVX2; one limit for both keeps results alike. With groups
// the channels of one group are what the kernel sees. Contiguous tensors are safe, but one rule is easier to
// trust, and a tensor of one channel is both.
bool backward_weights_is_unsafe(DType dtype, std::int64_t in_channels, const std::int64_t (&in_size)[2],
                                const Window& window) {
  if (window.kernel[0] == 1 && window.kernel[1] == 1 && (window.stride[0] > 1 || window.stride[1] > 1) &&
      in_channels / window.groups < 16)
    return true;
  if (dtype != DType::bf16) return false;
  for (int d = 0; d < 2; ++d) {
    if (window.dilation[d] > 1) return true;
    for (std::int64_t k = 0; k < window.kernel[d]; ++k) {
      bool seen = false;
      for (std::int64_t o = 0; o < window.out_size(d, in_size[d]); ++o) {
        const std::int64_t pixel = o * window.stride[d] - window.padding[d] + k;
        seen = seen || (pixel >= 0 && pixel < in_size[d]);
      }
      if (!seen) return true;
    }
  }
  return false;
}

}  // namespace brigade::onednn
