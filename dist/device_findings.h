// SPDX-License-Identifier: MIT
// dist/device_findings.h - the verdict on gradients that lie on a device: flags in its memory, so that nobody waits to
// know whether a step counts. Optimizers there look at skip(); the host reads the rest a step later.
// Read before: dist/doctor.h (Finding, Verdict: the same on the CPU). Used by dist/bucket_reducer.cpp.
#pragma once

#include <vector>

#include "dist/doctor.h"
#include "dist/process_group.h"

namespace brigade::dist {

/// Of one step. Flags (i32, 0 or 1): two a rank and bucket, {gradient not finite, does not fit the type that travels};
/// one a rank, its loss is not finite; then one for all, the step does not count, as a mean or a loss is not finite.
/// One reduction behind the last bucket makes them the same on all ranks.
class DeviceFindings {
 public:
  /// Zeros the flags, on the current stream.
  DeviceFindings(Device device, int rank, int size, int buckets);
  /// On the same stream, before a bucket is launched.
  void look_at_loss(const Tensor& loss);

  // On the communication stream.

  /// This rank's gradients of a bucket, before they travel.
  void look_at_own(int bucket, const Tensor& gradients);
  /// What a hook sends of them.
  void look_at_sent(int bucket, const Tensor& sent);
  void look_at_mean(const Tensor& gradients);

  // On the caller's thread.

  /// Queues the reduction of the flags and their way to the host. Does not block.
  void exchange(ProcessGroup& group);
  /// The latter alone, each time that a captured exchange() has been repeated: no capture holds it. Does not block.
  void fetch(ProcessGroup& group);
  /// One i32, not 0 if the step does not count. For work of streams that wait for exchange(): see wait().
  Tensor skip() const { return flags_.slice(0, flags_.numel() - 1, flags_.numel()); }
  void wait() const { work_.wait(); }
  struct Report {
    std::vector<Finding> findings;  ///< By rank, without a position.
    std::vector<bool> loss_finite;  ///< By rank.

    bool any() const;
    /// Gives each finding its position: the first parameter, in its bucket if it has one, whose mean is not finite. The
    /// means must still be there. Blocks.
    void locate(const BucketPlan& plan, const optim::FlatParameters& parameters);
  };
  /// Blocks until the flags are here. The same on all ranks. Rank 0's finding is mean_not_finite if the step does not
  /// count and no rank's gradients explain it. Throws CommError.
  Report read() const;

 private:
  std::int64_t index(int rank, int bucket, int kind) const {
    return (static_cast<std::int64_t>(rank) * buckets_ + bucket) * 2 + kind;
  }
  std::int64_t loss_index(int rank) const { return index(size_, 0, 0) + rank; }
  void flag(const Tensor& x, std::int64_t at);
  Work reduce(ProcessGroup& group, const char* operation, bool reduces, bool fetches);

  int rank_, size_, buckets_;
  Tensor flags_;
  Storage pinned_;
  Work work_, fetched_;
};

}  // namespace brigade::dist
