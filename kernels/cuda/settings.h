// SPDX-License-Identifier: MIT
// kernels/cuda/settings.h - what a program may choose about NVIDIA's libraries. For the whole process; read at each
// call. Plain C++: a program sets them without a CUDA header.
#pragma once

namespace brigade::cuda {

/// Whether f32 products and convolutions may round their factors to TF32 (10 bits of mantissa; sums stay f32): several
/// times faster on tensor cores. Off at the start: f32 then means f32.
void set_allow_tf32(bool allow);
bool allow_tf32();

/// Whether cuDNN times its algorithms on the first call with a shape, instead of asking a heuristic. The choice, and
/// with it the last bits of results, may then differ between runs. Off at the start.
void set_time_convolutions(bool on);
bool time_convolutions();

/// Whether cuBLASLt computes the ReLU behind a linear layer in the pass that writes the product. Its max(x, 0) makes 0
/// of a NaN, so that a broken weight may go unnoticed. Off at the start: then a kernel of ours follows, in place.
void set_relu_in_epilogue(bool on);
bool relu_in_epilogue();

}  // namespace brigade::cuda
