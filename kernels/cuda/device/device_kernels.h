// SPDX-License-Identifier: MIT
// kernels/cuda/device/device_kernels.h - the door to libbrigade_device_kernels.so, which nvcc compiles: plain values
// and device pointers in, kernels on a stream out. What each function computes is written at its slot in
// kernels/kernels.h. All return at once, with an error of the launch or cudaErrorInvalidValue for a dtype that the
// caller ought to have refused. The slots that call them: kernels/cuda/*.cpp.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/dtype.h"
#include "kernels/parameters.h"

#if defined(__GNUC__)
#define BRIGADE_DEVICE_API __attribute__((visibility("default")))
#else
#define BRIGADE_DEVICE_API
#endif

namespace brigade::device {

inline constexpr int kMaxWalkDims = 8;

/// N tensors walked together (kernels/walk.h); the last dim is the innermost. At least one dim, and fewer than 2^31
/// elements. Tensor 0 is the result. Strides in elements.
template <int N>
struct Strided {
  std::int64_t numel = 0;
  int dims = 1;
  std::int64_t size[kMaxWalkDims] = {};
  std::int64_t stride[N][kMaxWalkDims] = {};
};

// ---- elementwise.cu, unary.cu, binary.cu, copy.cu -----------------------------------------------------------
BRIGADE_DEVICE_API cudaError_t fill(DType dtype, void* out, const Strided<1>& walk, double value,
                                    cudaStream_t stream);
/// Walk: out, x.
BRIGADE_DEVICE_API cudaError_t copy(DType from, DType to, const void* x, void* out, const Strided<2>& walk,
                                    cudaStream_t stream);
BRIGADE_DEVICE_API cudaError_t unary(Unary op, DType dtype, const void* x, void* out, const Strided<2>& walk,
                                     cudaStream_t stream);
/// Walk: out, a, b. Without b (nullptr) each element meets `scalar`.
BRIGADE_DEVICE_API cudaError_t binary(Binary op, DType dtype, const void* a, const void* b, double scalar,
                                      void* out, const Strided<3>& walk, cudaStream_t stream);
/// Walk: out, condition, a, b. Any dtype of `item_bytes`.
BRIGADE_DEVICE_API cudaError_t where(int item_bytes, const bool* condition, const void* a, const void* b,
                                     void* out, const Strided<4>& walk, cudaStream_t stream);
BRIGADE_DEVICE_API cudaError_t quantize(DType to, const float* x, float scale, void* out,
                                        const Strided<2>& walk, cudaStream_t stream);

// ---- random.cu: walks in logical order -----------------------------------------------------------------------
enum class Distribution : std::uint8_t { uniform, normal };
/// out = shift + scale * number.
BRIGADE_DEVICE_API cudaError_t random(Distribution distribution, DType dtype, std::uint64_t seed,
                                      std::uint64_t sequence, double shift, double scale, void* out,
                                      const Strided<1>& walk, cudaStream_t stream);
/// Walk: out, x.
BRIGADE_DEVICE_API cudaError_t dropout(DType dtype, std::uint64_t seed, std::uint64_t sequence, double p,
                                       const void* x, void* out, const Strided<2>& walk, cudaStream_t stream);

// ---- reduce.cu -----------------------------------------------------------------------------------------------
/// A reduction cut in two: outputs (walk: out, x) and what each of them is made of (walk: x).
struct Reduce {
  Strided<2> kept;
  Strided<1> reduced;
  bool inner_is_kept = false;  ///< The densest dim of x is a kept one.
  std::int64_t pieces = 1;     ///< Each output's positions are cut into so many; a function of shapes alone.
};
/// To the same dtype, or a sum of 16-bit floats to f32. `partial`: device memory of pieces * kept.numel wide values (8
/// bytes each), unless pieces is 1.
BRIGADE_DEVICE_API cudaError_t reduce(Reduction op, DType from, DType to, const void* x, void* out,
                                      const Reduce& plan, void* partial, cudaStream_t stream);
/// Along a dim of `count` elements, `step` apart. Walk: out, x without the dim.
BRIGADE_DEVICE_API cudaError_t argmax(DType dtype, const void* x, std::int64_t count, std::int64_t step,
                                      std::int64_t* out, const Strided<2>& walk, cudaStream_t stream);
inline constexpr int kSquareBlocks = 1024;
/// `partial`: kSquareBlocks doubles. The sum goes to `sum`, in addition to what is there if `adds`.
BRIGADE_DEVICE_API cudaError_t sum_of_squares(DType dtype, const void* x, const Strided<1>& walk,
                                              double* partial, double* sum, bool adds, cudaStream_t stream);

// ---- reduce_sources.cu ---------------------------------------------------------------------------------------
inline constexpr int kMaxSources = 16;
struct Sources {
  const void* at[kMaxSources] = {};
  int count = 0;
};
/// `count` elements of each source, combined in their order; `out` may be one of them.
BRIGADE_DEVICE_API cudaError_t reduce_sources(Reduction op, DType dtype, const Sources& from, void* out,
                                              std::int64_t count, cudaStream_t stream);

// ---- rows.cu, layer_norm.cu, cross_entropy.cu: dense rows ----------------------------------------------------
struct Rows {
  std::int64_t count = 0, width = 0;
};
enum class RowFunction : std::uint8_t { softmax, log_softmax };
BRIGADE_DEVICE_API cudaError_t softmax(RowFunction function, DType from, DType to, const void* x, void* out,
                                       Rows rows, cudaStream_t stream);
BRIGADE_DEVICE_API cudaError_t softmax_grad(RowFunction function, DType dtype, const void* dy, const void* y,
                                            void* dx, Rows rows, cudaStream_t stream);
struct Labels {
  const std::int64_t* at = nullptr;
  double smoothing = 0;
  std::int64_t ignored = 0;
};
/// From log-probabilities of dtype f32 or f64: the mean loss, one element of that dtype. `losses`: rows doubles.
BRIGADE_DEVICE_API cudaError_t cross_entropy(DType dtype, const void* log_probs, const Labels& labels,
                                             Rows rows, double* losses, void* loss, cudaStream_t stream);
/// `counted`: one element, written first. dloss: one of `dloss_type`, f32 or f64.
BRIGADE_DEVICE_API cudaError_t cross_entropy_grad(const void* dloss, DType dloss_type, DType from, DType to,
                                                  const void* log_probs, const Labels& labels, Rows rows,
                                                  std::int64_t* counted, void* dlogits, cudaStream_t stream);
BRIGADE_DEVICE_API cudaError_t layer_norm(DType dtype, const void* x, const void* gamma, const void* beta,
                                          double epsilon, void* out, void* mean, void* invstd, Rows rows,
                                          cudaStream_t stream);
/// Slices of rows whose column sums are taken apart and then added: a function of shapes alone.
inline std::int64_t layer_norm_slices(Rows rows) {
  return rows.count < 256 ? 1 : rows.count < 65536 ? rows.count / 128 : 512;
}
/// `partial`: 2 * layer_norm_slices(rows) * width values of the parameters' dtype.
BRIGADE_DEVICE_API cudaError_t layer_norm_grad(DType dtype, const void* dy, const void* x, const void* gamma,
                                               const void* mean, const void* invstd, void* dx, void* dgamma,
                                               void* dbeta, void* partial, Rows rows, cudaStream_t stream);

// ---- pool.cu -------------------------------------------------------------------------------------------------
/// A 4-D activation: sizes and strides of N, C, H, W.
struct Image {
  std::int64_t size[4] = {}, stride[4] = {};
};
BRIGADE_DEVICE_API cudaError_t max_pool2d(DType dtype, const void* x, const Image& x_at, const Window& window,
                                          void* out, const Image& out_at, std::int64_t* index,
                                          const Image& index_at, cudaStream_t stream);
BRIGADE_DEVICE_API cudaError_t max_pool2d_grad(DType dtype, const void* dy, const Image& dy_at,
                                               const std::int64_t* index, const Image& index_at,
                                               const Window& window, void* dx, const Image& dx_at,
                                               cudaStream_t stream);
/// Without a window (nullptr): adaptive.
BRIGADE_DEVICE_API cudaError_t avg_pool2d(DType dtype, const void* x, const Image& x_at, const Window* window,
                                          void* out, const Image& out_at, cudaStream_t stream);
BRIGADE_DEVICE_API cudaError_t avg_pool2d_grad(DType dtype, const void* dy, const Image& dy_at,
                                               const Window* window, void* dx, const Image& dx_at,
                                               cudaStream_t stream);

// ---- embedding.cu --------------------------------------------------------------------------------------------
/// Rows of floats, `rows` of them in w: an id beyond gets a row of NaNs.
BRIGADE_DEVICE_API cudaError_t embedding(int row_bytes, const void* w, std::int64_t rows,
                                         const std::int64_t* ids, std::int64_t count, void* out,
                                         cudaStream_t stream);
/// Adds to rows of dw that are zeros. An id beyond its `rows` adds nothing.
BRIGADE_DEVICE_API cudaError_t embedding_grad(DType dtype, const void* dy, const std::int64_t* ids,
                                              std::int64_t count, std::int64_t rows, std::int64_t width,
                                              void* dw, cudaStream_t stream);
/// `found`: the first position, or all ones, and the id there, or 0. Walk in logical order.
BRIGADE_DEVICE_API cudaError_t find_out_of_range(const std::int64_t* ids, const Strided<1>& walk,
                                                 std::int64_t limit, std::int64_t allowed,
                                                 std::int64_t* found, cudaStream_t stream);

// ---- optimizer.cu: flat memory -------------------------------------------------------------------------------
BRIGADE_DEVICE_API cudaError_t sgd(const SgdConstants& k, DType dtype, const void* grad, void* momentum,
                                   void* param, std::int64_t count, cudaStream_t stream);
BRIGADE_DEVICE_API cudaError_t adamw(const AdamwConstants& k, DType dtype, const void* grad, void* m, void* v,
                                     void* param, std::int64_t count, cudaStream_t stream);
BRIGADE_DEVICE_API cudaError_t lerp(DType dtype, const void* target, double weight, void* average,
                                    std::int64_t count, cudaStream_t stream);
/// One number each, in memory of the device.
BRIGADE_DEVICE_API cudaError_t clip_factor(double max_norm, const double* squares, float* factor,
                                           cudaStream_t stream);
BRIGADE_DEVICE_API cudaError_t trust_ratio(const TrustConstants& k, const double* value_squares,
                                           const double* grad_squares, float* ratio, cudaStream_t stream);
BRIGADE_DEVICE_API cudaError_t flag_non_finite(DType dtype, const void* x, const Strided<1>& walk,
                                               std::int32_t* flag, cudaStream_t stream);
BRIGADE_DEVICE_API cudaError_t update_loss_scale(const LossScaleConstants& k, const std::int32_t* found,
                                                 float* scale, std::int32_t* good_steps, cudaStream_t stream);

// ---- attention.cu, attention_grad.cu ---------------------------------------------------------------------------
/// [batch, heads, positions, width] with dense rows: where it begins, and its other strides in elements.
struct HeadRows {
  void* at = nullptr;
  std::int64_t stride[3] = {};
};
struct AttentionSize {
  std::int64_t batch = 0, heads = 0, queries = 0, keys = 0, width = 0;
};
BRIGADE_DEVICE_API cudaError_t attention(DType dtype, const AttentionSize& size,
                                         const AttentionOptions& options, const HeadRows& q,
                                         const HeadRows& k, const HeadRows& v, const HeadRows& out,
                                         void* log_sums, cudaStream_t stream);
/// What the gradient reads, and what it writes. `deltas`: scratch memory like log_sums.
struct AttentionGradient {
  HeadRows q, k, v, out, dout, dq, dk, dv;
  const void* log_sums = nullptr;
  void* deltas = nullptr;
};
BRIGADE_DEVICE_API cudaError_t attention_grad(DType dtype, const AttentionSize& size,
                                              const AttentionOptions& options,
                                              const AttentionGradient& tensors, cudaStream_t stream);

// ---- augment.cu ----------------------------------------------------------------------------------------------
BRIGADE_DEVICE_API cudaError_t augment_images(const std::uint8_t* images, const std::int32_t* placements,
                                              const float* values, std::int64_t cutout, DType dtype,
                                              void* out, const Image& out_at, cudaStream_t stream);

}  // namespace brigade::device
