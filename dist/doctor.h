// SPDX-License-Identifier: MIT
// dist/doctor.h - what is always watched: that ranks hold the same model, are about to do the same, and hold the same
// parameters; that nothing infinite spreads. A finding is the same error on every rank and names ranks and parameters.
// Who did not come is found by time-outs (Work::wait) and told by Transport::arrivals().
// Read before: dist/roll_call.h. Used by dist/roll_call.cpp and dist/ddp.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dist/roll_call.h"
#include "nn/module.h"
#include "nn/optim/flat_parameters.h"

namespace brigade::dist {

/// Blocks until all ranks have described their model; throws Error on all of them, rank 0 included, with the first
/// difference: in count, name, order, shape, dtype, trainability or buffers.
void check_same_model(ProcessGroup& group, const std::vector<nn::NamedParameter>& parameters,
                      const std::vector<nn::NamedBuffer>& buffers);

/// Throws Error if somebody has bound a parameter to other memory, by a second FlatParameters for example: the means
/// would not reach it.
void check_memory(const optim::FlatParameters& parameters);
/// Throws Error for a leaf of a backward that nobody observes, in the shape of a parameter that takes no part in it
/// although it should: a module's parameter was replaced. (Others, like an input that requires a gradient, are fine.)
/// `awaited`: by position, whether the backward reaches it.
void refuse_replaced(const optim::FlatParameters& parameters, std::span<const Variable> unobserved,
                     const std::vector<bool>& awaited);

/// "rank 1: expected <rank 0's line> as on rank 0, got <its own>; rank 2: …" for the first line in which each rank
/// differs from rank 0. Collective, on the communication stream: all ranks get the same text. Empty if there is no
/// difference.
std::string difference(Transport& transport, const std::vector<std::string>& mine);

/// Whether the number that backward starts from is finite; true where it is none, or lies on a device, which is not
/// waited for (DeviceFindings looks at it).
bool loss_is_finite(const Variable& root);

/// A checksum of each parameter's value, by position. Of a device it looks at copies: blocks.
std::vector<std::uint64_t> parameter_sums(const optim::FlatParameters& parameters);

/// "1f00…": 16 hexadecimal digits.
std::string hex(std::uint64_t value);

/// What a rank found in its own gradients before they travelled.
struct Finding {
  enum class Kind : std::int64_t { none, not_finite, overflow, mean_not_finite } kind = Kind::none;
  std::int64_t position = -1;  ///< Of the first parameter.
  std::int64_t bucket = -1;
};

// What all ranks can say alike after a step, from the same findings and the same roll call; empty if there is nothing.

/// "the loss is finite, but the gradient is not; first on rank 1, bucket 2, parameter "fc.weight"". `loss_finite`: by
/// rank.
std::string describe_findings(const std::vector<Finding>& findings, const std::vector<bool>& loss_finite,
                              const optim::FlatParameters& parameters, std::string_view hook);
/// "2 of 62 parameters took no part in the loss on some rank: "fc.bias" (used on 1 of 2 ranks), …"; frozen ones are
/// left out.
std::string describe_unused(const RollCall& roll_call, const optim::FlatParameters& parameters);
/// ""fc.bias" (on 1 of 2 ranks)": frozen on some ranks, not on all.
std::string describe_half_frozen(const RollCall& roll_call, const optim::FlatParameters& parameters);

/// Every rank's finding, in rank order: queued behind the last bucket, so that all ranks judge the step alike.
class Verdict {
 public:
  Verdict() = default;
  /// Does not block. `later`, which counts if `mine` is none, is read on the communication stream, when all buckets
  /// before have travelled.
  Verdict(ProcessGroup& group, const Finding& mine, std::shared_ptr<const Finding> later);
  /// Blocks. Throws CommError.
  const std::vector<Finding>& wait() const;

 private:
  std::shared_ptr<std::vector<Finding>> findings_;
  Work work_;
};

}  // namespace brigade::dist
