// SPDX-License-Identifier: MIT
// apps/telemetry/recorder.h - carries what all ranks recorded into rank 0's files. A step's line is held back until the
// other ranks' records of it are here, half a second or so: only they tell who was last. What never arrives, because
// ranks end by an error, is written without that. Read before: dist/ledger_gather.h, apps/telemetry/run_files.h.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "apps/telemetry/run_files.h"
#include "dist/ddp.h"

namespace brigade::telemetry {

/// How often each rank was last, and by how much in all, over steps that all ranks have told of.
struct LateSteps {
  std::int64_t steps = 0;
  struct OfRank {
    std::int64_t times = 0;
    double lag_ms = 0;  ///< Sum.
  };
  std::vector<OfRank> ranks;
  /// "rank 2 was last in 83 % of the steps, 3.1 ms after the median rank"; empty if nobody stands out.
  std::string text() const;
};

/// One rank's end. All ranks make the same calls in the same order.
class Recorder {
 public:
  /// Ledgers are gathered when so much time has passed, or so many steps.
  static constexpr std::chrono::milliseconds kPeriod{500};
  static constexpr std::size_t kMaxWaiting = 64;

  /// Collective; blocks (clocks are compared). `files`: of rank 0, nullptr if there are none. Both must outlive it.
  Recorder(dist::Ddp& ddp, RunFiles* files, Clock::time_point begin);
  /// Writes what flush() has not, without the other ranks: they may be gone.
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// What is known of a step, at once or some steps later.
  void add(const apps::StepReport& report);
  /// The step that the ledger recorded last is over. Blocks for nothing that was not sent a step ago.
  void exchange();
  /// Everything so far is in the files. Collective; blocks.
  void flush();

  const LateSteps& late() const { return late_; }  ///< On rank 0.
  const std::vector<dist::ClockOffset>& clocks() const { return gather_.clocks(); }

 private:
  struct Waiting {
    apps::StepReport report;
    std::int64_t ledger_step = 0;
    double t_s = 0;
    BucketLabels labels;
  };
  void take(std::vector<dist::GatheredStep> steps);
  void write(const Waiting& waiting, const dist::GatheredStep* gathered);
  void keep_labels();

  dist::Ddp& ddp_;
  RunFiles* files_;
  Clock::time_point begin_;
  bool is_root_;
  dist::LedgerGather gather_;
  std::deque<Waiting> waiting_;
  bool asked_ = false;
  Clock::time_point last_gather_;
  std::map<std::int64_t, BucketLabels> labels_;  // By plan epoch: the last two.
  LateSteps late_;
};

}  // namespace brigade::telemetry
