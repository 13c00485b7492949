// SPDX-License-Identifier: MIT
// tests/support/training.h - toy models and one step of data-parallel training, for tests of Ddp and the theorems.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dist/ddp.h"
#include "nn/module.h"

namespace brigade::test {

/// The toy of CASES.md: 16-32-10, f32, weights a function of `seed`.
std::unique_ptr<nn::Module> toy_mlp(std::uint64_t seed = 1);
/// Convolution, pooling and a linear head on [N, 3, 8, 8]; no batch norm, so that a batch
/// can be split over ranks exactly.
std::unique_ptr<nn::Module> toy_cnn(std::uint64_t seed = 1);

/// A deterministic classification batch of which each rank takes its slice: all ranks together see samples
/// [0, global size). Inputs [n, features…], labels in [0, 10).
struct ToyBatch {
  Tensor inputs, labels;
};
ToyBatch toy_batch(const Shape& features, std::int64_t global_size, int rank, int size, std::uint64_t seed);

/// Loss of one toy batch (mean over the slice), on the model's device.
Variable toy_loss(nn::Module& model, const ToyBatch& batch);

/// Copies of all parameters (or gradients) in memory of the host, in order of registration.
std::vector<Tensor> copy_values(const nn::Module& model);
std::vector<Tensor> copy_gradients(const nn::Module& model);

/// Throws unless both lists agree: bitwise, or within `relative` of the largest element of each tensor.
void require_same(const std::vector<Tensor>& a, const std::vector<Tensor>& b, const std::string& message);
void require_close(const std::vector<Tensor>& a, const std::vector<Tensor>& b, double relative,
                   const std::string& message);

/// Throws unless every rank holds the same bits.
void require_same_on_all_ranks(const std::vector<Tensor>& tensors, dist::ProcessGroup& group,
                               const std::string& message);

}  // namespace brigade::test
