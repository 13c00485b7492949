// SPDX-License-Identifier: MIT
// nn/size2.h - a height and a width, given as one number or two.
#pragma once

#include <cstdint>

namespace brigade::nn {

struct Size2 {
  std::int64_t h = 0, w = 0;
  Size2(std::int64_t both) : h(both), w(both) {}  // NOLINT(google-explicit-constructor)
  Size2(std::int64_t height, std::int64_t width) : h(height), w(width) {}
};

}  // namespace brigade::nn
