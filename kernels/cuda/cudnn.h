// SPDX-License-Identifier: MIT
// kernels/cuda/cudnn.h - convolutions by NVIDIA's cuDNN; only kernels/cuda/cudnn_* include its header.
// Read before: kernels/cuda/conv_problem.h. Read next: kernels/cuda/conv.cpp.
#pragma once

#include "kernels/cuda/conv_problem.h"

namespace brigade::cuda {

/// Enqueues one pass on the calling thread's current stream: the tensor that it computes is overwritten, or added to
/// with beta 1. All three are dense as `problem` says, on boundaries of 16 bytes, no size is 0.
///
/// An algorithm is looked for once for each problem, thread and device; only ones that give the same bits every time
/// are taken. Returns false, before anything was written, if cuDNN has none for this dtype and format. Throws Error if
/// cuDNN fails.
bool cudnn_convolve(const ConvProblem& problem, const Tensor& x, const Tensor& w, const Tensor& y,
                    double beta);

/// Whether cudnn_convolve() has returned false for it on this thread: no need to bring tensors into shape again.
bool cudnn_is_known_to_refuse(const ConvProblem& problem, Device device);

}  // namespace brigade::cuda
