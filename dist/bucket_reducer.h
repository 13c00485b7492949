// SPDX-License-Identifier: MIT
// dist/bucket_reducer.h - what all strategies share: buckets that fill, launch once, are waited for,
// and leave their times in the ledger. A strategy (dist/grad_sync.h) only decides *when* to launch.
// Read before: dist/bucket_plan.h, dist/process_group.h.
#pragma once

#include <string>
#include <vector>

#include "dist/bucket_plan.h"
#include "dist/ledger.h"
#include "dist/process_group.h"
#include "nn/optim/flat_parameters.h"

namespace brigade::dist {

/// The buckets of one rank during one backward.
///
/// State of a bucket: filling -> (all its gradients ready) complete -> launched -> reduced.
/// The mean over ranks is taken in place, in gradient memory: nothing is packed, copied or unpacked.
class BucketReducer {
 public:
  /// All of them must outlive the reducer. `plan` must fit `parameters` (see check_plan).
  BucketReducer(ProcessGroup& group, optim::FlatParameters& parameters, const BucketPlan& plan,
                Ledger& ledger);

  int bucket_count() const { return static_cast<int>(buckets_.size()); }

  /// Starts a step, whose record the ledger has begun: every bucket is filling again.
  void begin();
  /// The gradient at `position` is final. Each position once a step (Error otherwise).
  void mark_ready(int position);
  bool complete(int bucket) const { return buckets_[static_cast<std::size_t>(bucket)].missing == 0; }
  /// Queues the mean over ranks of a complete bucket. Does not block.
  void launch(int bucket);
  /// Blocks until the result of a launched bucket is in place.
  void wait(int bucket);
  /// Blocks until no launched bucket is under way, failed or not: after a backward that an exception ended, before the
  /// next one writes the same memory.
  void drain();

  /// "bucket 2 (layer4.1.conv2.weight + 5 more)": for errors and the ledger.
  const std::string& label(int bucket) const { return buckets_[static_cast<std::size_t>(bucket)].label; }

 private:
  struct Bucket {
    BucketSpec spec;
    std::string label;
    Tensor gradients;  // Flat view over its range.
    int missing = 0;   // Positions not ready yet.
    Work work;
    BucketRecord record;
  };

  ProcessGroup* group_;
  optim::FlatParameters* parameters_;
  Ledger* ledger_;
  std::vector<Bucket> buckets_;
  std::vector<int> bucket_of_;  // By position.
  std::vector<bool> ready_;     // By position.
};

}  // namespace brigade::dist
