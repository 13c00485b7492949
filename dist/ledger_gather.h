// SPDX-License-Identifier: MIT
// dist/ledger_gather.h - brings the ledgers of all ranks to rank 0 now and then, on rank 0's clock: who was late, and
// what the others computed while a bucket travelled, is known only there. The message travels between steps, behind
// the last bucket and ahead of the next roll call, while every rank already computes its next forward.
// Read before: dist/ledger.h, dist/clock_sync.h. Read next: apps/telemetry/run_files.h.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dist/clock_sync.h"
#include "dist/ledger.h"
#include "dist/process_group.h"

namespace brigade::dist {

/// One step as all ranks recorded it, times on rank 0's clock.
struct GatheredStep {
  std::int64_t step = 0;
  std::vector<StepRecord> ranks;  ///< By rank. StepRecord::ready and ::control stay at home.

  /// Whose gradients of one bucket were ready last.
  Straggler straggler(std::size_t bucket) const;
  /// Whose last gradient came last.
  Straggler straggler() const;
};

/// One rank's end. All ranks make the same calls in the same order.
class LedgerGather {
 public:
  /// What a rank sends at once, at most. If its steps do not fit, the spans of the oldest stay behind, then the oldest
  /// steps.
  static constexpr std::int64_t kMaxBytes = 1 << 20;
  /// After which clocks are compared again.
  static constexpr std::chrono::seconds kClockPeriod{10};

  /// Compares clocks. Collective; blocks. Both must outlive it.
  LedgerGather(ProcessGroup& group, const Ledger& ledger);

  /// Sends the steps recorded since the last call whose times are known (StepRecord::settled), on the communication
  /// stream. Collective; does not block (but for an earlier one that is still under way). Not in the middle of a step.
  void begin();
  /// What has arrived since the last call, on rank 0, in order; elsewhere nothing. Blocks for what begin() sent; throws
  /// CommError if it failed.
  std::vector<GatheredStep> finish();
  bool under_way() const { return shared_ != nullptr; }
  bool done() const { return work_.done(); }

  /// Of every rank; on other ranks than 0 only of that rank.
  const std::vector<ClockOffset>& clocks() const { return clocks_; }

 private:
  struct Shared;  // With the communication stream.

  ProcessGroup* group_;
  const Ledger* ledger_;
  std::int64_t next_ = 0;  // First step not sent yet.
  std::vector<ClockOffset> clocks_;
  std::shared_ptr<Shared> shared_;
  Work work_;
};

/// The words of a message, and back: steps on rank 0's clock by `clock`, the oldest dropped beyond `max_words`.
std::vector<std::int64_t> encode_steps(const Ledger& ledger, std::int64_t first, const ClockOffset& clock,
                                       std::size_t max_words);
/// Throws Error for words that are none of encode_steps().
std::vector<StepRecord> decode_steps(std::span<const std::int64_t> words);

}  // namespace brigade::dist
