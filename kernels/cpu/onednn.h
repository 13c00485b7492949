// SPDX-License-Identifier: MIT
// kernels/cpu/onednn.h - what the CPU kernels ask of oneDNN, in terms of tensors. Files named onednn* are the
// only ones that see dnnl.hpp. Callers: conv_algorithms.cpp, matmul.cpp, table.cpp. Read next: onednn_primitives.h.
#pragma once

#include "kernels/kernels.h"

namespace brigade::onednn {

/// "2.6.3", of the library that is loaded.
std::string version();

/// Whether oneDNN has bf16 primitives for this processor (they need AVX-512).
bool supports_bf16();
/// Whether the processor adds products of four bytes in 32 bits (VNNI). Without it oneDNN's int8 kernels saturate
/// at 16 bits, silently.
bool supports_int8();
/// Whether bf16 matrix products run on AMX tiles.
bool supports_amx();

/// Layouts in which a convolution runs; weights go into oneDNN's own in any case.
enum class ConvMethod {
  direct,    ///< Activations as they lie.
  blocked,   ///< Activations in oneDNN's own layout, copied there and back.
  winograd,  ///< f32, 3x3, stride 1, padding 1; direct where this processor has no kernel for the shape.
};

/// Convolutions. Activations f32 or bf16 (all of one dtype), dense in the same memory format; w and dw
/// f32, contiguous OIHW; bias f32 or undefined.
template <ConvMethod method>
void conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window, Tensor& out);
template <ConvMethod method>
void conv2d_grad_input(const Tensor& dy, const Tensor& w, const Window& window, Tensor& dx);
/// Must not be called where backward_weights_is_unsafe().
template <ConvMethod method>
void conv2d_grad_weight(const Tensor& dy, const Tensor& x, const Window& window, Tensor& dw);

/// True for the shapes on which oneDNN 2.6 hangs, crashes or corrupts the heap in backward-weights (kernel 1x1, stride
/// above 1, fewer than 16 input channels, channels_last), and for those where its results in bf16 are wrong: a dilated
/// kernel, or one with positions that no input pixel of `in_size` (height, width) lies under.
bool backward_weights_is_unsafe(DType dtype, std::int64_t in_channels, const std::int64_t (&in_size)[2],
                                const Window& window);

/// The slots of the kernel table (onednn_packed_conv.cpp).
bool can_pack_conv2d(DType dtype);
std::unique_ptr<PackedConv> pack_conv2d(const PackedConvSpec& spec);

/// True for the bf16 products that oneDNN 2.6 gets wrong, or dies of, on AMX tiles: with 49 to 63 columns on three
/// threads and more, and some of 34 or 47 rows. All those seen have columns that are no multiple of 16.
inline bool bf16_product_is_unsafe(std::int64_t columns) { return columns % 16 != 0; }

/// out = a b + bias + beta out for a [B, M, K], b [B, K, N], out [B, M, N]. a and b f32 or bf16 (the same),
/// out that or f32, bias [N] f32 or undefined. The last two dims of a and b must be row- or column-major (see
/// is_matrix()), those of out row-major; a batch stride of 0 repeats one matrix.
void matmul(const Tensor& a, const Tensor& b, const Tensor& bias, double beta, Tensor& out);

/// Whether the last two dims of `t` are row-major without overlap (rows may be padded).
bool is_row_major(const Tensor& t);
/// Row-major, or the transpose of a row-major matrix.
bool is_matrix(const Tensor& t);

}  // namespace brigade::onednn
