// SPDX-License-Identifier: MIT
// kernels/cpu/onednn_conv.cpp - the three convolution primitives. Activations keep the layout they have;
// weights go into the layout oneDNN wants (`any`), because only then does it reach its fast kernels.
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/onednn_primitives.h"

namespace brigade::onednn {

namespace {

using dnnl::memory;

constexpr auto kAlgorithm = dnnl::algorithm::convolution_direct;

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
memory::dims weight_dims(const Tensor& w, const Window& window) {
  memory::dims dims(w.shape().begin(), w.shape().end());
  if (window.groups > 1) {
    dims[0] /= window.groups;
    dims.insert(dims.begin(), window.groups);
  }
  return dims;
}

memory::desc oihw(const memory::dims& dims) {
  return {dims, memory::data_type::f32,
          dims.size() == 4 ? memory::format_tag::oihw : memory::format_tag::goihw};
}

memory::desc any(const memory::dims& dims, memory::data_type type) {
  return {dims, type, memory::format_tag::any};
}

memory::desc vector(std::int64_t size) { return {{size}, memory::data_type::f32, memory::format_tag::x}; }

struct Geometry {
  memory::dims strides, dilates, padding;

  // oneDNN counts the holes of a dilated kernel: 0 is a dense one. Padding at the far side is given as at the
  // near side; the output size decides how much of it is read.
  explicit Geometry(const Window& w)
      : strides{w.stride[0], w.stride[1]},
        dilates{w.dilation[0] - 1, w.dilation[1] - 1},
        padding{w.padding[0], w.padding[1]} {}
};

// The copy from OIHW to the primitive's layout, for the two directions that read weights.
void add_weights(Primitive& p, const memory::desc& plain, const memory::desc& chosen,
                 const dnnl::engine& engine) {
  p.weights = chosen;
  if (chosen != plain) p.reorder = dnnl::reorder({engine, plain, engine, chosen});
}

// The weights in the primitive's layout, in `packed` where they had to be copied. They change once a training
// step and are copied at every call.
memory packed_weights(Context& context, const Primitive& p, const memory::desc& plain, const Tensor& w,
                      Tensor& packed) {
  memory from = context.memory(plain, w);
  if (!p.reorder) return from;
  packed = bytes_for(p.weights);
  memory to = context.memory(p.weights, packed);
  context.run_reorder(p, from, to);
  return to;
}

Primitive forward(const dnnl::engine& engine, const memory::desc& x, const memory::dims& w, bool has_bias,
                  const memory::desc& y, const Geometry& g) {
  using Forward = dnnl::convolution_forward;
  const auto weights = any(w, x.data_type());
  // forward_training differs from forward_inference in nothing for a convolution.
  const auto kind = dnnl::prop_kind::forward_training;
  const auto desc =
      has_bias ? Forward::desc(kind, kAlgorithm, x, weights, vector(y.dims()[1]), y, g.strides, g.dilates,
                               g.padding, g.padding)
               : Forward::desc(kind, kAlgorithm, x, weights, y, g.strides, g.dilates, g.padding, g.padding);
  const Forward::primitive_desc pd(desc, attributes(), engine);
  Primitive p{Forward(pd), pd.scratchpad_desc(), {}, {}};
  add_weights(p, oihw(w), pd.weights_desc(), engine);
  return p;
}

// Both backward primitives want the forward one as a hint.
dnnl::convolution_forward::primitive_desc hint(const dnnl::engine& engine, const memory::desc& x,
                                               const memory::desc& w, const memory::desc& y,
                                               const Geometry& g) {
  return {
      {dnnl::prop_kind::forward_training, kAlgorithm, x, w, y, g.strides, g.dilates, g.padding, g.padding},
      attributes(),
      engine};
}

Primitive backward_data(const dnnl::engine& engine, const memory::desc& dx, const memory::dims& w,
                        const memory::desc& dy, const Geometry& g) {
  using Backward = dnnl::convolution_backward_data;
  const auto weights = any(w, dx.data_type());
  const Backward::primitive_desc pd({kAlgorithm, dx, weights, dy, g.strides, g.dilates, g.padding, g.padding},
                                    attributes(), engine, hint(engine, dx, weights, dy, g));
  Primitive p{Backward(pd), pd.scratchpad_desc(), {}, {}};
  add_weights(p, oihw(w), pd.weights_desc(), engine);
  return p;
}

Primitive backward_weights(const dnnl::engine& engine, const memory::desc& x, const memory::dims& w,
                           const memory::desc& dy, const Geometry& g) {
  using Backward = dnnl::convolution_backward_weights;
  // The gradient leaves in f32 also for bf16 activations: it is added to others and to f32 weights.
  const Backward::primitive_desc pd(
      {kAlgorithm, x, any(w, memory::data_type::f32), dy, g.strides, g.dilates, g.padding, g.padding},
      attributes(), engine, hint(engine, x, any(w, x.data_type()), dy, g));
  Primitive p{Backward(pd), pd.scratchpad_desc(), pd.diff_weights_desc(), {}};
  if (p.weights != oihw(w)) p.reorder = dnnl::reorder({engine, p.weights, engine, oihw(w)});
  return p;
}

}  // namespace

void conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window, Tensor& out) {
  Context& context = Context::of_this_thread();
  const memory::desc x_desc = activation(x, out), y_desc = activation(out, x);
  const memory::dims w_dims = weight_dims(w, window);
  Key key(Key::Op::conv);
  key.add(x_desc).add(y_desc).add(window).add(bias.defined());
  const Primitive& p = context.find(std::move(key), [&] {
    return forward(context.engine(), x_desc, w_dims, bias.defined(), y_desc, Geometry(window));
  });

  Tensor packed;
  std::unordered_map<int, memory> arguments{
      {DNNL_ARG_SRC, context.memory(x_desc, x)},
      {DNNL_ARG_WEIGHTS, packed_weights(context, p, oihw(w_dims), w, packed)},
      {DNNL_ARG_DST, context.memory(y_desc, out)}};
  if (bias.defined()) arguments.emplace(DNNL_ARG_BIAS, context.memory(vector(bias.numel()), bias));
  context.run(p, std::move(arguments));
}

void conv2d_grad_input(const Tensor& dy, const Tensor& w, const Window& window, Tensor& dx) {
  Context& context = Context::of_this_thread();
  const memory::desc dx_desc = activation(dx, dy), dy_desc = activation(dy, dx);
  const memory::dims w_dims = weight_dims(w, window);
  Key key(Key::Op::conv_grad_input);
  key.add(dx_desc).add(dy_desc).add(window);
  const Primitive& p = context.find(std::move(key), [&] {
    return backward_data(context.engine(), dx_desc, w_dims, dy_desc, Geometry(window));
  });

  Tensor packed;
  context.run(p, {{DNNL_ARG_DIFF_DST, context.memory(dy_desc, dy)},
                  {DNNL_ARG_WEIGHTS, packed_weights(context, p, oihw(w_dims), w, packed)},
                  {DNNL_ARG_DIFF_SRC, context.memory(dx_desc, dx)}});
}

void conv2d_grad_weight(const Tensor& dy, const Tensor& x, const Window& window, Tensor& dw) {
  Context& context = Context::of_this_thread();
  const memory::desc x_desc = activation(x, dy), dy_desc = activation(dy, x);
  const memory::dims w_dims = weight_dims(dw, window);
  Key key(Key::Op::conv_grad_weight);
  key.add(x_desc).add(dy_desc).add(window);
  const Primitive& p = context.find(std::move(key), [&] {
    return backward_weights(context.engine(), x_desc, w_dims, dy_desc, Geometry(window));
  });

  const Tensor packed = p.reorder ? bytes_for(p.weights) : dw;
  memory gradient = context.memory(p.weights, packed);
  context.run(p, {{DNNL_ARG_SRC, context.memory(x_desc, x)},
                  {DNNL_ARG_DIFF_DST, context.memory(dy_desc, dy)},
                  {DNNL_ARG_DIFF_WEIGHTS, gradient}});
  if (p.reorder) {
    memory plain = context.memory(oihw(w_dims), dw);
    context.run_reorder(p, gradient, plain);
  }
}

// The limit is 16 channels with AVX-512 and 8 with AVX2; one limit for both keeps results alike. With groups
// the channels of one group are what the kernel sees. Contiguous tensors are safe, but one rule is easier to
// trust, and a tensor of one channel is both.
bool backward_weights_is_unsafe(const Tensor& x, const Window& window) {
  return window.kernel[0] == 1 && window.kernel[1] == 1 && (window.stride[0] > 1 || window.stride[1] > 1) &&
         x.size(1) / window.groups < 16;
}

}  // namespace brigade::onednn
