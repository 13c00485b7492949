// SPDX-License-Identifier: MIT
// dist/bucket_reducer.h - what all strategies share: buckets that fill, launch once, are waited for,
// and leave their times in the ledger. A strategy (dist/grad_sync.h) only decides *when* to launch, a hook
// (dist/comm_hook.h) *what* travels. Read before: dist/bucket_plan.h, dist/process_group.h, dist/roll_call.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dist/bucket_plan.h"
#include "dist/comm_hook.h"
#include "dist/device_findings.h"
#include "dist/doctor.h"
#include "dist/ledger.h"
#include "dist/process_group.h"
#include "dist/roll_call.h"
#include "nn/optim/flat_parameters.h"

namespace brigade::dist {

/// What happens besides the collective itself.
struct ReducerOptions {
  /// Look at each of this rank's gradients when it is ready, in one pass. A bucket with one that is not finite travels
  /// as zeros, so that nothing spreads, and all ranks learn of it from the verdict. On a device buckets are looked at
  /// on the communication stream, and travel as they are: see device_findings().
  bool look_for_non_finite = true;
  /// Take the norm of each reduced gradient, on the communication stream. Of gradients on the CPU.
  bool norms = false;
};

/// The buckets of one rank during one backward.
///
/// State of a bucket: filling -> (all its gradients ready) complete -> launched -> reduced.
/// The mean over ranks is taken in place, in gradient memory: nothing is packed, copied or unpacked.
/// On a device nothing here waits for it: wait() and finish() make the caller's current stream wait.
class BucketReducer {
 public:
  /// `group` and `ledger` must outlive the reducer; calls under way keep the others alive. `plan` must fit `parameters`
  /// (see check_plan).
  BucketReducer(ProcessGroup& group, std::shared_ptr<optim::FlatParameters> parameters,
                const BucketPlan& plan, std::shared_ptr<CommHook> hook, Ledger& ledger,
                ReducerOptions options = {});

  int bucket_count() const { return static_cast<int>(buckets_.size()); }
  /// What travels as one.
  const Tensor& memory(int bucket) const { return buckets_[static_cast<std::size_t>(bucket)].gradients; }

  /// Starts a step, whose record the ledger has begun and whose roll call is queued: every bucket is filling again.
  void begin(std::shared_ptr<const RollCall> roll_call);
  /// The gradient at `position` is final. Each position once a step (Error otherwise).
  void mark_ready(int position);
  bool complete(int bucket) const { return buckets_[static_cast<std::size_t>(bucket)].missing == 0; }
  /// Queues the mean over ranks of a complete bucket. Does not block.
  void launch(int bucket);
  /// Blocks until the result of a launched bucket is in place.
  void wait(int bucket);
  /// Every bucket is launched: waits for those nobody has waited for, and learns what each rank found in its gradients;
  /// on a device nothing yet.
  std::vector<Finding> finish();
  /// Of the step since begin(), on a device that looks; else null. Behind finish() its flag is in place.
  const std::shared_ptr<DeviceFindings>& device_findings() const { return step_->findings; }
  /// Blocks until no launched bucket is under way, failed or not: after a backward that an exception ended, before the
  /// next one writes the same memory.
  void drain();

  /// Sum of squares of each reduced gradient, by position, after finish(); ReducerOptions::norms.
  const std::vector<double>& squares() const { return step_->squares; }
  /// Positions not ready yet, and the first of them (-1: none).
  int pending() const { return pending_; }
  int first_pending() const;

  /// "bucket 2 (layer4.1.conv2.weight + 5 more)": for errors and the ledger.
  const std::string& label(int bucket) const { return buckets_[static_cast<std::size_t>(bucket)].label; }

 private:
  struct Bucket {
    BucketSpec spec;
    std::string label;
    std::int64_t begin = 0;  // Of `gradients` in the flat view over spec.range, in elements.
    Tensor gradients;
    int missing = 0;  // Positions not ready yet.
    Work work = {};
    bool finite = true;  // This rank's gradients so far.
    bool launched = false, waited = false;
    BucketRecord record = {};
  };
  // Of one backward, written on the communication stream, read when it is done.
  struct Step {
    std::int64_t number = 0;
    std::shared_ptr<const RollCall> roll_call;
    std::shared_ptr<Finding> overflow = std::make_shared<Finding>();
    std::shared_ptr<DeviceFindings> findings;
    std::vector<double> squares;           // By position.
    std::vector<std::int64_t> wire_bytes;  // By bucket.
  };
  // False for all parts of a split parameter but the last: its norm needs all of them.
  bool completes(int bucket) const {
    const int position = buckets_[static_cast<std::size_t>(bucket)].spec.range.begin;
    return bucket == buckets_of_[static_cast<std::size_t>(position)].end - 1;
  }
  // What a queued call needs, kept alive by it.
  struct Reduction;
  bool on_device() const { return device_ != Device{}; }
  void record_later(const Bucket& bucket);

  ProcessGroup* group_;
  std::shared_ptr<optim::FlatParameters> parameters_;
  std::shared_ptr<CommHook> hook_;
  Ledger* ledger_;
  ReducerOptions options_;
  Device device_;  // Of the gradients.
  std::vector<Bucket> buckets_;
  std::vector<optim::Range> buckets_of_;  // By position: several hold the parts of a split parameter.
  std::vector<bool> ready_;               // By position.
  int pending_ = 0;
  Finding found_;  // The first of this rank's gradients that is not finite.
  std::shared_ptr<Step> step_;
};

}  // namespace brigade::dist
