// SPDX-License-Identifier: MIT
// core/fetched.h - values of a device that the host reads later: losses, flags, norms of a step that has long gone on.
// Read before: core/runtime.h (copy_to_pinned).
#pragma once

#include <cstring>
#include <vector>

#include "core/check.h"
#include "core/tensor.h"

namespace brigade {

/// A tensor's values on their way to the host, behind what the current stream was given. Nobody waits before values().
class Fetched {
 public:
  Fetched() = default;  ///< Nothing.
  /// `t` is contiguous; it may be written to, or go, by work behind this.
  explicit Fetched(const Tensor& t) : dtype_(t.dtype()) {
    BRIGADE_CHECK(t.is_contiguous(), "fetched: needs a contiguous tensor; got ", t);
    Runtime& device = runtime(t.device());
    memory_ = device.allocate_pinned(t.bytes());
    bytes_ = t.bytes();
    device.copy_to_pinned(memory_.data(), t.raw(), bytes_);
    here_ = device.current_stream().record();
  }

  bool here() const { return here_.done(); }
  /// Blocks until they are here.
  template <class T>
  std::vector<T> values() const {
    BRIGADE_CHECK(dtype_ == dtype_of<T>(), "fetched: values are ", dtype_, "; asked for ", dtype_of<T>());
    here_.wait();
    std::vector<T> out(static_cast<std::size_t>(bytes_) / sizeof(T));
    std::memcpy(out.data(), memory_.data(), static_cast<std::size_t>(bytes_));
    return out;
  }

 private:
  Storage memory_;
  std::int64_t bytes_ = 0;
  DType dtype_ = DType::f32;
  Event here_;
};

}  // namespace brigade
