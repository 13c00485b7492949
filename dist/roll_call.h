// SPDX-License-Identifier: MIT
// dist/roll_call.h - the few words with which ranks begin a synchronised backward: what each is about to call, which
// parameters it uses, how much it counts. One small collective ahead of all buckets, hidden behind backward: it costs
// the critical path nothing, and it is why no bucket needs a check of its own.
// Read before: dist/process_group.h. Read next: dist/ddp.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dist/bucket_plan.h"
#include "dist/process_group.h"

namespace brigade::dist {

/// What one rank says.
struct RollCallEntry {
  std::int64_t step = 0;    ///< Counts synchronised backwards; must agree.
  std::uint64_t calls = 0;  ///< Fingerprint of RollCallTexts::calls; must agree.
  bool active = true;       ///< False: this rank has no batch left and only keeps the others company.
  bool loss_finite = true;  ///< Of the value that backward started from, and of micro-steps before.
  double weight = 1;        ///< How much its gradient counts in the mean, relative to the others'.
  std::uint64_t wishes =
      0;                   ///< Bits of dist::Decision: what this rank wants all ranks to do after this step.
  std::uint64_t sums = 0;  ///< Checksum of all parameters; 0: not compared in this step. Must agree.
  std::vector<bool> used = {};    ///< By position: takes part in the loss here.
  std::vector<bool> frozen = {};  ///< By position: does not require a gradient any more.
};

/// What a rank is about to call, in words: kept at hand for the case that there is a difference.
struct RollCallTexts {
  std::vector<std::string>
      calls;  ///< A line a collective, in order: "bucket 2: f32, 4000 bytes (conv1.weight)".
  std::vector<std::string> names;  ///< Of the parameters, by position.
  std::uint64_t fingerprint = 0;   ///< Of `calls`.
};
/// `headline`: what else must agree, like the strategy.
RollCallTexts describe_calls(std::string headline, const BucketPlan& plan,
                             const optim::FlatParameters& parameters);

/// One roll call. Later calls of the group may rely on it: if ranks disagree, the group fails on all of them before any
/// bucket moves a byte, with a CommError that says for each rank what was expected and what it was about to call.
class RollCall {
 public:
  /// Queues the collective; does not block. `sums`: checksums by position behind mine.sums, or empty.
  RollCall(ProcessGroup& group, const RollCallEntry& mine, std::shared_ptr<const RollCallTexts> texts,
           std::vector<std::uint64_t> sums = {});

  /// Blocks until all entries are here. Throws CommError: see the class.
  void wait() const { work_.wait(); }
  WorkTimes times() const { return work_.times(); }
  std::int64_t bytes() const { return bytes_; }  ///< Of the reduction: a sample of the network's latency.

  // On the communication stream behind the roll call, or anywhere after wait().

  const std::vector<RollCallEntry>& entries() const { return *entries_; }
  int active() const;              ///< Ranks with a batch.
  int users(int position) const;   ///< Ranks on which the parameter takes part.
  int frozen(int position) const;  ///< Ranks on which it is frozen.
  bool wished(std::uint64_t bit) const;
  /// What rank's gradients are multiplied by so that the plain mean over ranks becomes the weighted one; 1 if all
  /// count alike. Weights that are all 0 are an error of the roll call.
  double scale(int rank) const;

 private:
  std::shared_ptr<std::vector<RollCallEntry>> entries_;  // Filled on the communication stream.
  std::int64_t bytes_ = 0;
  Work work_;
};

}  // namespace brigade::dist
