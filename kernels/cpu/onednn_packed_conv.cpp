// SPDX-License-Identifier: MIT
// kernels/cpu/onednn_packed_conv.cpp - convolution for inference. oneDNN decides which layout of weights it wants when
// it sees the whole problem, number of images and threads included. So a packed convolution keeps a list: the primitive
// for each shape it has met, and the weights for each layout, of which there is nearly always one.
// Read before: kernels/packed_conv.h, onednn_primitives.h.
#include <algorithm>
#include <cstring>
#include <mutex>

#include "core/parallel.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/onednn_primitives.h"
#include "kernels/ops.h"
#include "kernels/packed_conv.h"

namespace brigade::onednn {

namespace {

using dnnl::algorithm;
using dnnl::memory;

// Measured on ResNet-18, one thread, AMX: on images of 4x4 a product of gathered patches takes a third of the direct
// convolution's time in bf16 and int8; from 8x8 on the direct one is faster. Winograd, in f32, takes half of it.
enum class Way { direct, winograd, patches };

constexpr std::int64_t kSmallImage = 16;        // Pixels.
constexpr std::int64_t kWinogradChannels = 32;  // Fewer do not pay for its transforms.
constexpr std::size_t kMaxShapes = 64;  // Then all are forgotten, so that changing shapes do not fill memory.

bool is(const std::int64_t (&pair)[2], std::int64_t value) { return pair[0] == value && pair[1] == value; }

Way choose(const PackedConvSpec& spec, const Tensor& out) {
  const Window& w = spec.window;
  if (w.groups != 1) return Way::direct;
  const bool pointwise = is(w.kernel, 1);
  if (spec.in != DType::f32)
    return !pointwise && out.size(2) * out.size(3) <= kSmallImage ? Way::patches : Way::direct;
  const bool wide = spec.weight.size(0) >= kWinogradChannels && spec.weight.size(1) >= kWinogradChannels;
  const bool fits = is(w.kernel, 3) && is(w.stride, 1) && is(w.padding, 1) && is(w.dilation, 1);
  return wide && fits ? Way::winograd : Way::direct;
}

memory::desc nhwc(const Tensor& t) {
  return {memory::dims(t.shape().begin(), t.shape().end()), data_type(t.dtype()), memory::format_tag::nhwc};
}

memory::desc any(const memory::desc& desc, DType type) {
  return {desc.dims(), data_type(type), memory::format_tag::any};
}

// A row for each output pixel: what it sees, kernel positions in order, channels side by side. The same bytes for all
// dtypes, since zero is zero in each.
Tensor gather(const Tensor& x, const Tensor& out, const Window& w) {
  const std::int64_t bytes = x.size(1) * x.item_bytes(), height = x.size(2), width = x.size(3);
  const std::int64_t columns = w.kernel[0] * w.kernel[1] * x.size(1);
  const std::int64_t out_h = out.size(2), out_w = out.size(3), rows = out.size(0) * out_h * out_w;
  Tensor patches = Tensor::empty({rows, columns}, x.dtype());
  parallel_for(rows, 4, [&](std::int64_t begin, std::int64_t end) {
    std::byte* to = patches.raw() + begin * columns * x.item_bytes();
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t image = r / (out_h * out_w) * height;
      const std::int64_t top = r / out_w % out_h * w.stride[0] - w.padding[0],
                         left = r % out_w * w.stride[1] - w.padding[1];
      for (std::int64_t i = 0; i < w.kernel[0]; ++i)
        for (std::int64_t j = 0; j < w.kernel[1]; ++j, to += bytes) {
          const std::int64_t h = top + i * w.dilation[0], v = left + j * w.dilation[1];
          if (h < 0 || h >= height || v < 0 || v >= width)
            std::memset(to, 0, static_cast<std::size_t>(bytes));
          else
            std::memcpy(to, x.raw() + ((image + h) * width + v) * bytes, static_cast<std::size_t>(bytes));
        }
    }
  });
  return patches;
}

// Weights in the layout of a primitive.
struct Packed {
  memory::desc desc;
  Tensor bytes;
};

// The primitive for one shape.
struct Compiled {
  Shape x;
  int threads;
  Way way;
  dnnl::primitive primitive;
  memory::desc source, target, scratchpad;  // Activations as the primitive takes them.
  memory::desc plain_source, plain_target;  // As they lie.
  std::shared_ptr<const Packed> weights;
  dnnl::reorder read{}, read_residual{}, write{};  // Between the two; empty where they are one.

  bool reorders() const { return static_cast<bool>(read); }
};

class OneDnnPackedConv final : public PackedConv {
 public:
  explicit OneDnnPackedConv(const PackedConvSpec& spec)
      : PackedConv(spec), engine_(dnnl::engine::kind::cpu, 0) {
    bias_ = ops::contiguous(spec.bias);
    if (!spec.scale.defined()) return;
    // oneDNN adds the bias to the sum and then scales both.
    scales_ = ops::contiguous(spec.scale).to_vector<float>();
    bias_ = ops::div(bias_, spec.scale);
  }

  void run(const Tensor& x, Tensor& out) const override {
    if (out.numel() == 0) return;
    try {
      execute(*find(x, out), x, out);
    } catch (const dnnl::error& e) {
      fail(str("packed_conv2d: oneDNN failed with ", e.what(), ", status ", static_cast<int>(e.status),
               ", for x ", x, " and weight ", spec().weight));
    }
  }

 private:
  std::shared_ptr<const Compiled> find(const Tensor& x, const Tensor& out) const {
    const std::lock_guard lock(mutex_);
    const int threads = num_threads();
    for (const auto& c : compiled_)
      if (c->x == x.shape() && c->threads == threads) return c;
    if (compiled_.size() >= kMaxShapes) compiled_.clear();
    return compiled_.emplace_back(compile(x, out, threads));
  }

  dnnl::primitive_attr attributes_of_spec() const {
    dnnl::primitive_attr attr = attributes();
    if (!scales_.empty()) attr.set_output_scales(1 << 1, scales_);  // Of dim 1, the channels.
    dnnl::post_ops then;
    if (spec().residual)
      then.append_sum(static_cast<float>(spec().residual->scale), 0, data_type(spec().residual->dtype));
    if (spec().relu) then.append_eltwise(1.0f, algorithm::eltwise_relu, 0.0f, 0.0f);
    attr.set_post_ops(then);
    return attr;
  }

  std::shared_ptr<const Compiled> compile(const Tensor& x, const Tensor& out, int threads) const {
    const Way way = choose(spec(), out);
    if (way == Way::patches) return compile_patches(x, out, threads);
    if (way == Way::winograd) {
      try {
        return compile_convolution(x, out, threads, way);
      } catch (const dnnl::error&) {
        // This processor has no Winograd kernel for the shape.
      }
    }
    return compile_convolution(x, out, threads, Way::direct);
  }

  std::shared_ptr<const Compiled> compile_convolution(const Tensor& x, const Tensor& out, int threads,
                                                      Way way) const {
    const PackedConvSpec& s = spec();
    const Window& w = s.window;
    const memory::desc from = nhwc(x), to = nhwc(out), weights = plain_weights().first;
    const bool winograd = way == Way::winograd;
    const dnnl::convolution_forward::primitive_desc pd(
        {dnnl::prop_kind::forward_inference,
         winograd ? algorithm::convolution_winograd : algorithm::convolution_direct,
         winograd ? any(from, s.in) : from, any(weights, s.scale.defined() ? DType::i8 : s.in), bias_desc(),
         winograd ? any(to, s.out) : to, memory::dims{w.stride[0], w.stride[1]},
         memory::dims{w.dilation[0] - 1, w.dilation[1] - 1}, memory::dims{w.padding[0], w.padding[1]},
         memory::dims{w.padding[0], w.padding[1]}},
        attributes_of_spec(), engine_);
    Compiled compiled{.x = x.shape(),
                      .threads = threads,
                      .way = way,
                      .primitive = dnnl::convolution_forward(pd),
                      .source = pd.src_desc(),
                      .target = pd.dst_desc(),
                      .scratchpad = pd.scratchpad_desc(),
                      .plain_source = from,
                      .plain_target = to,
                      .weights = pack(plain_weights(), pd.weights_desc())};
    const auto between = [&](const memory::desc& a, const memory::desc& b) {
      return dnnl::reorder({engine_, a, engine_, b});
    };
    if (winograd) {
      compiled.read = between(from, compiled.source);
      compiled.write = between(compiled.target, to);
      if (s.residual) compiled.read_residual = between(to, compiled.target);
    }
    return std::make_shared<Compiled>(std::move(compiled));
  }

  std::shared_ptr<const Compiled> compile_patches(const Tensor& x, const Tensor& out, int threads) const {
    const PackedConvSpec& s = spec();
    const std::int64_t channels = out.size(1), rows = out.numel() / channels,
                       columns = s.weight.numel() / channels;
    const memory::desc from({rows, columns}, data_type(s.in), memory::format_tag::ab),
        to({rows, channels}, data_type(s.out), memory::format_tag::ab),
        bias({1, channels}, memory::data_type::f32, memory::format_tag::ab),
        weights({columns, channels}, data_type(s.weight.dtype()), memory::dims{1, columns});
    const dnnl::matmul::primitive_desc pd(
        {from, any(weights, s.scale.defined() ? DType::i8 : s.in), bias, to}, attributes_of_spec(), engine_);
    // [O, kH, kW, C], as the patches.
    const Tensor by_position = ops::contiguous(s.weight, MemoryFormat::channels_last);
    return std::make_shared<Compiled>(Compiled{.x = x.shape(),
                                               .threads = threads,
                                               .way = Way::patches,
                                               .primitive = dnnl::matmul(pd),
                                               .source = from,
                                               .target = to,
                                               .scratchpad = pd.scratchpad_desc(),
                                               .plain_source = from,
                                               .plain_target = to,
                                               .weights = pack({weights, by_position}, pd.weights_desc())});
  }

  memory::desc bias_desc() const { return {{bias_.numel()}, memory::data_type::f32, memory::format_tag::x}; }

  // OIHW, or [g, O / g, I / g, kH, kW] with groups.
  std::pair<memory::desc, Tensor> plain_weights() const {
    const Tensor w = ops::contiguous(spec().weight);
    memory::dims dims(w.shape().begin(), w.shape().end());
    const auto type = data_type(w.dtype());
    const std::int64_t groups = spec().window.groups;
    if (groups == 1) return {{dims, type, memory::format_tag::oihw}, w};
    dims[0] /= groups;
    dims.insert(dims.begin(), groups);
    return {{dims, type, memory::format_tag::goihw}, w};
  }

  std::shared_ptr<const Packed> pack(const std::pair<memory::desc, Tensor>& plain,
                                     const memory::desc& wanted) const {
    for (const auto& c : compiled_)
      if (c->weights->desc == wanted) return c->weights;
    Packed packed{wanted, bytes_for(wanted)};
    dnnl::stream stream(engine_);
    memory from(plain.first, engine_, plain.second.raw()), to(wanted, engine_, packed.bytes.raw());
    dnnl::reorder(from, to).execute(stream, from, to);
    stream.wait();
    return std::make_shared<Packed>(std::move(packed));
  }

  void execute(const Compiled& c, const Tensor& x, Tensor& out) const {
    dnnl::stream stream(engine_);
    const auto at = [&](const memory::desc& desc, const Tensor& t) { return memory(desc, engine_, t.raw()); };
    const auto copy = [&](dnnl::reorder reorder, memory from, memory to) {
      reorder.execute(stream, from, to);
    };

    Tensor source = x, target = out;
    if (c.way == Way::patches) source = gather(x, out, spec().window);
    if (c.reorders()) {
      source = bytes_for(c.source), target = bytes_for(c.target);
      copy(c.read, at(c.plain_source, x), at(c.source, source));
      if (spec().residual) copy(c.read_residual, at(c.plain_target, out), at(c.target, target));
    }
    const Tensor scratchpad = bytes_for(c.scratchpad);
    c.primitive.execute(stream, {{DNNL_ARG_SRC, at(c.source, source)},
                                 {DNNL_ARG_WEIGHTS, at(c.weights->desc, c.weights->bytes)},
                                 {DNNL_ARG_BIAS, bias_for(c.way)},
                                 {DNNL_ARG_DST, at(c.target, target)},
                                 {DNNL_ARG_SCRATCHPAD, at(c.scratchpad, scratchpad)}});
    if (c.reorders()) copy(c.write, at(c.target, target), at(c.plain_target, out));
    stream.wait();
  }

  memory bias_for(Way way) const {
    const memory::desc row({1, bias_.numel()}, memory::data_type::f32, memory::format_tag::ab);
    return {way == Way::patches ? row : bias_desc(), engine_, bias_.raw()};
  }

  // One of its own: a primitive runs on streams of the engine it was made with, on any thread.
  dnnl::engine engine_;
  Tensor bias_;
  std::vector<float> scales_;
  mutable std::mutex mutex_;
  mutable std::vector<std::shared_ptr<const Compiled>> compiled_;
};

}  // namespace

bool can_pack_conv2d(DType dtype) {
  if (dtype == DType::bf16) return supports_bf16();
  if (dtype == DType::u8 || dtype == DType::i8) return supports_int8();
  return dtype == DType::f32;
}

std::unique_ptr<PackedConv> pack_conv2d(const PackedConvSpec& spec) {
  return std::make_unique<OneDnnPackedConv>(spec);
}

}  // namespace brigade::onednn
