// SPDX-License-Identifier: MIT
// tests/support/theorems.h - what must hold however gradients are synchronised, as checks that take the synchronisation
// as an argument: Ddp with any options, or a mutant of it that must not pass.
// Read before: tests/support/training.h. Used by tests/integration/.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dist/ddp.h"
#include "nn/module.h"

namespace brigade::test {

/// A model and the batches it is trained on.
struct Subject {
  const char* name;
  std::unique_ptr<nn::Module> (*make)(std::uint64_t seed);
  Shape features;
};
/// toy_mlp and toy_cnn.
std::span<const Subject> subjects();

/// Samples of a training step of all ranks together; divides by 1, 2, 3 and 4.
inline constexpr std::int64_t kGlobalBatch = 24;

/// What keeps a model's gradients the same on all ranks.
struct Synchronised {
  std::shared_ptr<void> keeper;
  optim::FlatParameters* parameters;  ///< Belongs to `keeper`.
};
using Synchronise = std::function<Synchronised(const nn::Module& model, dist::ProcessGroup& group)>;
Synchronise with_ddp(dist::DdpOptions options);

/// Trains on the group's device for a few steps and returns the parameters; `after_step(model)` sees each step.
std::vector<Tensor> train(const Subject& subject, dist::ProcessGroup& group, const Synchronise& synchronise,
                          const std::function<void(const nn::Module&)>& after_step = {});
/// The same steps on one rank's whole batch, without any synchronisation.
std::vector<Tensor> train_serially(const Subject& subject, Device device = {});

// The theorems. Each trains, and throws Error with `what` and the difference unless it holds.

/// (1) p ranks on batch B/p equal one rank on batch B.
void require_serial_result(const Subject& subject, dist::ProcessGroup& group, const Synchronise& synchronise,
                           const std::string& what);
/// (2) After each step all ranks hold bit-identical parameters.
void require_equal_ranks(const Subject& subject, dist::ProcessGroup& group, const Synchronise& synchronise,
                         const std::string& what);
/// (3) The gradient is the one of `reference`: bitwise if `exact`, else but for the order of sums.
void require_same_gradient(const Subject& subject, dist::ProcessGroup& group, const Synchronise& synchronise,
                           const Synchronise& reference, bool exact, const std::string& what);

}  // namespace brigade::test
