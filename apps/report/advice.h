// SPDX-License-Identifier: MIT
// apps/report/advice.h - what a run's figures mean, in one sentence. A pure function, so that a test can hold each
// sentence against figures. Read before: apps/report/run_summary.h.
#pragma once

#include <span>
#include <string>

#include "apps/report/run_summary.h"

namespace brigade::report {

/// One sentence that names what costs most and what would help, with figures of this run; what is estimated is called
/// "about". In this order of precedence: nothing is known; one rank; the wire is idle while a late rank is waited for;
/// communication is hidden; a rank is late; nothing runs behind backward; the wire is slower than the processors; one
/// bucket sticks out.
std::string advice(const RunSummary& run);

/// Whether what is exposed is at least 1 % of a step: less nobody would notice, steps vary by more.
bool is_noticeable(const RunSummary& run);

/// A strategy of a comparison.
struct NamedRun {
  std::string name;
  RunSummary run;
};
/// One sentence that says which strategy is fastest, by how much, and why. At least one.
std::string advice(std::span<const NamedRun> strategies);

/// A whole number of milliseconds from 100 on, else two or three digits: "2.9 ms", "0.04 ms".
std::string ms_text(double ms);
/// "4.0 MiB", "640 KiB", "12 bytes".
std::string bytes_text(double bytes);

}  // namespace brigade::report
