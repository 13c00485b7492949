// SPDX-License-Identifier: MIT
// kernels/cpu/onednn.cpp - the primitive cache. Compiling a primitive costs up to milliseconds,
// running a small one microseconds; oneDNN's own cache is shared by all threads behind a lock and
// is asked only when ours misses.
#include "kernels/cpu/onednn.h"

#include "core/parallel.h"
#include "kernels/cpu/onednn_primitives.h"

namespace brigade::onednn {

namespace {

// A training job needs about a hundred. Shapes that change all the time (a last, smaller batch is one shape
// more) must not grow memory without end; at the limit everything is dropped, which is simple and rare.
constexpr std::size_t kMaxPrimitives = 1024;

// Instruction sets are numbered by their bits: a larger set has all bits of a smaller one.
bool has(dnnl::cpu_isa wanted) {
  const auto bits = static_cast<unsigned>(wanted);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & bits) == bits;
}

}  // namespace

std::string version() {
  const dnnl::version_t& v = *dnnl::version();
  return str(v.major, ".", v.minor, ".", v.patch);
}

bool supports_bf16() { return has(dnnl::cpu_isa::avx512_core); }
bool supports_int8() { return has(dnnl::cpu_isa::avx512_core_vnni) || has(dnnl::cpu_isa::avx2_vnni); }
bool supports_amx() { return has(dnnl::cpu_isa::avx512_core_amx); }

Key& Key::add(std::int64_t value) {
  numbers_.push_back(value);
  return *this;
}

Key& Key::add(const dnnl::memory::desc& desc) {
  add(static_cast<std::int64_t>(desc.data_type()));
  const auto& data = desc.data;
  add(data.ndims);
  for (int i = 0; i < data.ndims; ++i) add(data.dims[i]).add(data.format_desc.blocking.strides[i]);
  return *this;
}

Key& Key::add(const Window& window) {
  for (int d = 0; d < 2; ++d)
    add(window.kernel[d]).add(window.stride[d]).add(window.padding[d]).add(window.dilation[d]);
  return add(window.groups);
}

std::size_t Key::Hash::operator()(const Key& key) const {
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a over 64-bit words.
  for (const std::int64_t number : key.numbers_)
    hash = (hash ^ static_cast<std::uint64_t>(number)) * 1099511628211u;
  return hash ^ (hash >> 32);
}

Context& Context::of_this_thread() {
  thread_local Context context;
  return context;
}

const Primitive& Context::find(Key key, const std::function<Primitive()>& make) {
  key.add(num_threads());
  if (const auto found = primitives_.find(key); found != primitives_.end()) return found->second;
  if (primitives_.size() >= kMaxPrimitives) primitives_.clear();
  try {
    return primitives_.emplace(std::move(key), make()).first->second;
  } catch (const dnnl::error& e) {
    fail(str("onednn: a primitive could not be made; got ", e.what(), ", status ",
             static_cast<int>(e.status)));
  }
}

void Context::run(const Primitive& primitive, std::unordered_map<int, dnnl::memory> arguments) {
  const Tensor scratchpad = bytes_for(primitive.scratchpad);
  arguments.emplace(DNNL_ARG_SCRATCHPAD, memory(primitive.scratchpad, scratchpad));
  primitive.primitive.execute(stream_, arguments);
  stream_.wait();
}

void Context::run(dnnl::reorder reorder, dnnl::memory& from, dnnl::memory& to) {
  reorder.execute(stream_, from, to);
  stream_.wait();
}

dnnl::primitive_attr attributes() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

dnnl::memory::data_type data_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return dnnl::memory::data_type::f32;
    case DType::bf16:
      return dnnl::memory::data_type::bf16;
    case DType::u8:
      return dnnl::memory::data_type::u8;
    case DType::i8:
      return dnnl::memory::data_type::s8;
    default:
      fail(str("onednn: needs f32, bf16, u8 or i8; got ", dtype));
  }
}

Tensor bytes_for(const dnnl::memory::desc& desc) {
  return Tensor::empty({static_cast<std::int64_t>(desc.get_size())}, DType::u8);
}

}  // namespace brigade::onednn
