// SPDX-License-Identifier: MIT
// apps/common/terminal.h - where a program's lines go: a terminal that somebody looks at gets a line that changes in
// place below them, everything else plain lines. Read next: apps/common/run_log.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/stream.h"

namespace brigade::apps {

/// stdout.
class Terminal {
 public:
  /// Looks whether stdout is a terminal with a width (the kernel says). Ranks under mpirun see a
  /// pseudo-terminal of size 0, wherever their lines go: that is none, unless $COLUMNS tells of a real one behind it,
  /// as apps/launch has it do. $NO_COLOR (no-color.org) and TERM=dumb are heeded.
  Terminal();
  ~Terminal() { clear(); }  ///< Leaves the cursor at the begin of a line.
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  bool live() const { return width_ > 0; }  ///< Whether status() shows anything.
  int width() const { return width_; }
  bool colours() const { return colours_; }

  /// A line, whole at once, above the status.
  void line(const std::string& text);
  /// Replaces the status by `fields`, joined, as many from the left as fit. Ten times a second at most, unless `now`.
  void status(const std::vector<std::string>& fields, bool now = false);
  /// Removes the status.
  void clear();

 private:
  int width_ = 0;
  bool colours_ = false;
  std::string shown_;
  Clock::time_point drawn_{};
};

/// "[#####.....]" of `width` characters.
std::string progress_bar(std::int64_t done, std::int64_t all, int width);
/// How many evaluations are to come when `step` of `steps` is over, its own among them: one after each `every` steps
/// and one at the end. `every` 0: only that.
std::int64_t evaluations_ahead(std::int64_t step, std::int64_t steps, std::int64_t every);
/// "58 s", "2:03", "1:02:03".
std::string duration_text(double seconds);

}  // namespace brigade::apps
