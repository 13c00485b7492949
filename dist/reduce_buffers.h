// SPDX-License-Identifier: MIT
// dist/reduce_buffers.h - the arithmetic of reductions over ranks, shared by all backends and algorithms, so
// that a sum means the same bits everywhere. Read before: dist/transport.h (Reduce).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/tensor.h"
#include "dist/transport.h"
#include "kernels/parameters.h"

namespace brigade::dist {

/// `op` as kernels call it.
constexpr Reduction reduction_of(Reduce op) {
  switch (op) {
    case Reduce::sum:
      return Reduction::sum;
    case Reduce::mean:
      return Reduction::mean;
    case Reduce::min:
      return Reduction::min;
    case Reduce::max:
      return Reduction::max;
    case Reduce::prod:
      break;
  }
  return Reduction::prod;
}

/// out[i] = sources[0][i] op sources[1][i] op …, in this order, for every buffer in `outs`;
/// mean divides at the end. 16-bit floats are widened to f32 and rounded once. Each out may be
/// one of the sources. Never throws.
void reduce_buffers(std::span<const std::byte* const> sources, std::span<std::byte* const> outs, DType dtype,
                    std::int64_t count, Reduce op) noexcept;

/// into[i] = into[i] op from[i]; mean adds. 16-bit floats round at every call: widen first.
void accumulate(std::byte* into, const std::byte* from, DType dtype, std::int64_t count, Reduce op) noexcept;
inline void accumulate(Tensor& into, const Tensor& from, Reduce op) noexcept {
  accumulate(into.raw(), from.raw(), into.dtype(), into.numel(), op);
}

/// The tensor a reduction accumulates in: an f32 copy of 16-bit floats, `t` itself otherwise. 1-D and dense.
Tensor widened(const Tensor& t);

/// Ends a reduction over `size` ranks whose accumulation is in `sum`: divides for a mean and rounds once into
/// `t`, unless `sum` is `t` itself.
void finish(const Tensor& sum, Tensor& t, Reduce op, int size) noexcept;

}  // namespace brigade::dist
