// SPDX-License-Identifier: MIT
// kernels/cuda/device/batch_norm.h - batch norm's part of libbrigade_device_kernels.so: plain values and device
// pointers in, kernels on a stream out. Formulas: kernels/reference/norm.cpp. Who calls: kernels/cuda/batch_norm.cpp.
//
// Ours and not cuDNN's, because our slots are cut differently: statistics may come from elsewhere (a batch spread over
// ranks), the gradient's sums and the gradient are two calls (ranks add their sums in between), and a ReLU's mask is
// recomputed from x, where cuDNN's fused call keeps a reserve and wants x, y and z in 16-bit NHWC.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

#include "core/dtype.h"
#include "kernels/cuda/device/device_kernels.h"

namespace brigade::device {

/// A dense activation: rows [images * pixels, channels] (channels_last, 2-D) or planes [images, channels, pixels].
struct ChannelLayout {
  std::int64_t images = 0, channels = 0, pixels = 0;
  bool rows = true;

  std::int64_t count() const { return images * pixels; }  ///< Values of a channel.
};

/// Pieces that the values of a channel are cut into; each is summed apart, then they are merged in order. A function of
/// the shape alone, so that results are too. Enough of them to fill a large device, few enough to merge quickly.
inline std::int64_t channel_pieces(const ChannelLayout& l) {
  const std::int64_t tiles = l.rows ? (l.channels + 63) / 64 : l.channels, least = l.rows ? 128 : 2048;
  const std::int64_t most = std::max<std::int64_t>(512 / std::max<std::int64_t>(tiles, 1), 1);
  return std::clamp<std::int64_t>((l.count() + least - 1) / least, 1, most);
}

/// Values in each piece; the last has the rest, or none.
inline std::int64_t channel_piece(const ChannelLayout& l) {
  const std::int64_t pieces = channel_pieces(l);
  return (l.count() + pieces - 1) / pieces;
}

/// Means and sums of squared deviations, [pieces, channels] each; a piece is of `piece` values, the last of the rest.
struct MomentPieces {
  double *mean = nullptr, *squares = nullptr;
  std::int64_t pieces = 1, piece = 0;
};

/// What becomes of a channel's moments. Pointers to [channels] values of the parameters' dtype.
struct BatchNormStatistics {
  const void *gamma = nullptr, *beta = nullptr;
  double momentum = 0, epsilon = 0;
  void *running_mean = nullptr, *running_var = nullptr;  ///< May both be null.
  void *mean = nullptr, *invstd = nullptr, *shift = nullptr;
};

/// y = (x - mean) (gamma invstd) + shift, + residual, relu.
struct BatchNormApply {
  const void *x = nullptr, *gamma = nullptr, *mean = nullptr, *invstd = nullptr, *shift = nullptr;
  const void* residual = nullptr;  ///< May be null.
  bool relu = false;
  void* y = nullptr;
};

/// As BatchNormForward in kernels/kernels.h: at most one of shift and y is there.
struct BatchNormGrad {
  const void *dy = nullptr, *x = nullptr, *gamma = nullptr, *mean = nullptr, *invstd = nullptr;
  const void *shift = nullptr, *y = nullptr;
};

/// x's moments in pieces. `dtype` is x's here and below.
BRIGADE_DEVICE_API cudaError_t channel_moments(DType dtype, const void* x, const ChannelLayout& l,
                                               MomentPieces out, cudaStream_t stream);
/// One piece of them all.
BRIGADE_DEVICE_API cudaError_t merge_moments(const MomentPieces& in, const ChannelLayout& l, double* mean,
                                             double* squares, cudaStream_t stream);
BRIGADE_DEVICE_API cudaError_t batch_norm_statistics(DType dtype, const MomentPieces& in,
                                                     const ChannelLayout& l, const BatchNormStatistics& s,
                                                     cudaStream_t stream);
/// invstd = 1 / sqrt(variance + epsilon), [channels] of the parameters' dtype.
BRIGADE_DEVICE_API cudaError_t inverse_deviation(DType dtype, const void* variance, double epsilon,
                                                 void* invstd, std::int64_t channels, cudaStream_t stream);
BRIGADE_DEVICE_API cudaError_t batch_norm_apply(DType dtype, const BatchNormApply& a, const ChannelLayout& l,
                                                cudaStream_t stream);
/// `partial`: 2 * channel_pieces(l) * channels doubles. dz is written where g.y is there.
BRIGADE_DEVICE_API cudaError_t batch_norm_grad_sums(DType dtype, const BatchNormGrad& g,
                                                    const ChannelLayout& l, double* partial, void* dz,
                                                    void* dgamma, void* dbeta, cudaStream_t stream);
BRIGADE_DEVICE_API cudaError_t batch_norm_grad_input(DType dtype, const BatchNormGrad& g,
                                                     const ChannelLayout& l, const void* dgamma,
                                                     const void* dbeta, double count, void* dx,
                                                     cudaStream_t stream);

}  // namespace brigade::device
