// SPDX-License-Identifier: MIT
// dist/clock_sync.h - how far a rank's clock is from rank 0's, by ping-pong. Cristian's algorithm ("Probabilistic clock
// synchronization", 1989), the heart of NTP too: an answer that was back after a round trip of d was written somewhere
// inside that time, so halfway is wrong by d/2 at most; of several rounds the shortest counts.
// Read before: dist/transport.h. Read next: dist/ledger_gather.h.
#pragma once

#include <functional>

#include "dist/transport.h"

namespace brigade::dist {

/// Rank 0's clock as seen from a rank.
struct ClockOffset {
  Clock::duration offset{};      ///< Rank 0's reading minus ours, at the same moment.
  Clock::duration error{};       ///< It is wrong by no more than this, when it was measured.
  Clock::time_point measured{};  ///< When, on our clock.
  Clock::time_point on_rank_0(Clock::time_point ours) const { return ours + offset; }
  /// The bound at another time: quartz clocks drift apart by up to kDrift.
  Clock::duration error_at(Clock::time_point ours) const;
};

/// Seconds a second that two clocks may drift apart: NTP steers by less, cheap quartz alone is within 100e-6.
inline constexpr double kDrift = 100e-6;

/// Measures in `rounds` round trips with rank 0, one rank after another. Collective; blocks. An offset within its own
/// error bound counts as none: ranks on one host have one clock, and a guess would only make that worse.
/// `now` is the clock, for tests.
ClockOffset measure_clock(Transport& transport, int rounds = 10,
                          const std::function<Clock::time_point()>& now = Clock::now);

}  // namespace brigade::dist
