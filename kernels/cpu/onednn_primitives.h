// SPDX-License-Identifier: MIT
// kernels/cpu/onednn_primitives.h - oneDNN's engine, stream and compiled primitives of the calling thread.
// Included by kernels/cpu/onednn*.cpp only. Read before: onednn.h.
#pragma once

#include <cstdint>
#include <dnnl.hpp>
#include <functional>
#include <unordered_map>
#include <vector>

#include "kernels/kernels.h"

namespace brigade::onednn {

/// Everything a primitive is compiled for, as numbers: operation, dtypes, sizes,
/// strides, window. Never an address.
class Key {
 public:
  enum class Op : std::int64_t { conv, conv_grad_input, conv_grad_weight, matmul };

  explicit Key(Op op) { add(static_cast<std::int64_t>(op)); }
  Key& add(std::int64_t value);
  Key& add(const dnnl::memory::desc& desc);  ///< A plain (strided) one.
  Key& add(const Window& window);

  friend bool operator==(const Key&, const Key&) = default;
  struct Hash {
    std::size_t operator()(const Key& key) const;
  };

 private:
  std::vector<std::int64_t> numbers_;
};

/// The layout in which a primitive takes an operand, and the copy between it and the tensor's own layout
/// (into it for what is read, out of it for what is written). `reorder` is empty where the two are one.
struct Packing {
  dnnl::memory::desc desc;
  dnnl::reorder reorder;
};

/// A compiled primitive.
struct Primitive {
  dnnl::primitive primitive;
  dnnl::memory::desc scratchpad;
  Packing operands[3];  ///< Convolutions only: the two that are read, then the one that is written.
};

/// The calling thread's engine, stream and primitives. Thread ranks share none of it: a oneDNN stream is not
/// thread-safe, and a primitive is compiled for a number of threads.
class Context {
 public:
  static Context& of_this_thread();

  const dnnl::engine& engine() const { return engine_; }

  /// The primitive stored under `key` and the current number of threads, made by `make` the first time. The
  /// reference holds until the next call.
  const Primitive& find(Key key, const std::function<Primitive()>& make);

  /// Runs `primitive` and waits for it; adds the scratchpad.
  void run(const Primitive& primitive, std::unordered_map<int, dnnl::memory> arguments);
  void run(dnnl::reorder reorder, dnnl::memory& from, dnnl::memory& to);

  /// Memory of a tensor or of raw bytes; owns nothing.
  dnnl::memory memory(const dnnl::memory::desc& desc, const Tensor& t) const {
    return dnnl::memory(desc, engine_, t.raw());
  }

 private:
  Context() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

  dnnl::engine engine_;
  dnnl::stream stream_;
  std::unordered_map<Key, Primitive, Key::Hash> primitives_;
};

/// Attributes that all primitives share: scratchpad memory is ours, from the caching allocator.
dnnl::primitive_attr attributes();

dnnl::memory::data_type data_type(DType dtype);

/// Bytes of uninitialised memory for `desc`.
Tensor bytes_for(const dnnl::memory::desc& desc);

}  // namespace brigade::onednn
