// SPDX-License-Identifier: MIT
// kernels/cpu/amx/channel_sums.h - the moments of a convolution's result, from sums that are taken while it is
// written.
// Read before: result_rows.h.
#pragma once

#include "kernels/cpu/amx/result_rows.h"
#include "kernels/kernels.h"

namespace brigade::cpu::amx {

/// Sums over some rows of the result at a time, each set of rows in a slot of its own: the number of slots and what
/// belongs to one must not depend on the number of threads, then neither do the moments.
class ChannelSums {
 public:
  ChannelSums(std::int64_t slots, std::int64_t channels) : sums_(Tensor::zeros({slots, 2, channels})) {}

  MomentSums at(std::int64_t slot) const {
    float* sums = sums_.data<float>() + slot * 2 * sums_.size(2);
    return {sums, sums + sums_.size(2)};
  }

  /// Of `count` values a channel. Undefined if a mean is above four deviations: too little of the squares is left
  /// then.
  ChannelMoments moments(std::int64_t count) const {
    // The sums of a slot, f32 over at most 1,024 values, are right to 1e-6, so what is left to 1e-5.
    constexpr double kLeft = 1.0 / 16;
    const std::int64_t channels = sums_.size(2);
    const auto n = static_cast<double>(count);
    const ChannelMoments result{Tensor::zeros({channels}, DType::f64), Tensor::zeros({channels}, DType::f64)};
    double *sum = result.mean.data<double>(), *squares = result.squares.data<double>();
    for (std::int64_t slot = 0; slot < sums_.size(0); ++slot) {
      const MomentSums own = at(slot);
      for (std::int64_t c = 0; c < channels; ++c) {
        sum[c] += static_cast<double>(own.sum[c]);
        squares[c] += static_cast<double>(own.squares[c]);
      }
    }
    for (std::int64_t c = 0; c < channels; ++c) {
      const double mean = sum[c] / n, left = squares[c] - sum[c] * mean;
      if (!(left >= kLeft * squares[c])) return {};
      sum[c] = mean;
      squares[c] = left;
    }
    return result;
  }

 private:
  Tensor sums_;
};

}  // namespace brigade::cpu::amx
