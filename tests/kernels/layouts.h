// SPDX-License-Identifier: MIT
// tests/kernels/layouts.h - the same logical shape laid out in memory in every way a kernel may be given.
#pragma once

#include <string>
#include <vector>

#include "tests/support/device.h"

namespace brigade::test {

struct Layout {
  std::string name;
  Tensor tensor;
};

/// Random tensors of shape [2, 3, 4, 5]: dense in both formats, transposed, sliced, and expanded.
inline std::vector<Layout> layouts(std::uint64_t seed, DType dtype) {
  return {
      {"contiguous", random({2, 3, 4, 5}, seed, dtype)},
      {"channels_last", random({2, 3, 4, 5}, seed, dtype, MemoryFormat::channels_last)},
      {"transposed", random({5, 3, 4, 2}, seed, dtype).transpose(0, 3)},
      {"permuted", random({4, 2, 5, 3}, seed, dtype).permute({1, 3, 0, 2})},
      {"every other element", random({2, 3, 4, 10}, seed, dtype).slice(3, 1, 10, 2)},
      {"a middle part", random({4, 3, 6, 5}, seed, dtype).slice(0, 1, 3).slice(2, 2, 6)},
      {"expanded", random({2, 1, 4, 1}, seed, dtype).expand({2, 3, 4, 5})},
  };
}

/// Random tensors that broadcast to [2, 3, 4, 5].
inline std::vector<Layout> broadcasting(std::uint64_t seed, DType dtype) {
  return {
      {"a scalar", random({}, seed, dtype)},
      {"a row", random({5}, seed, dtype)},
      {"one a channel", random({3, 1, 1}, seed, dtype)},
      {"one a sample", random({2, 1, 1, 1}, seed, dtype)},
      {"a column", random({4, 1}, seed, dtype)},
  };
}

/// What rounding to `dtype` may change, with room for a few float operations; integers are exact.
inline double precision(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 1e-13;
    case DType::f32:
      return 1e-6;
    case DType::f16:
      return 0x1p-10;
    case DType::bf16:
      return 0x1p-7;
    default:
      return 0;
  }
}

}  // namespace brigade::test
