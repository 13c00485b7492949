// SPDX-License-Identifier: MIT
// apps/common/terminal.cpp - see the header.
#include "apps/common/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "apps/common/run_main.h"
#include "dist/launch.h"

namespace brigade::apps {
namespace {

constexpr int kNarrowest = 20;  // Below, a status says nothing.
constexpr std::chrono::milliseconds kRedraw{100};
constexpr const char* kEraseLine = "\r\x1b[K";

// Characters on the screen: UTF-8's followers take no place.
int length(std::string_view text) {
  return static_cast<int>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

bool is_set(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

void write(const std::string& text) { write_at_once(STDOUT_FILENO, text); }

}  // namespace

Terminal::Terminal() {
  const char* const term = std::getenv("TERM");
  if (isatty(STDOUT_FILENO) == 0 || (term != nullptr && std::string_view(term) == "dumb")) return;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return;
  width_ = size.ws_col;
  // Under mpirun it is a terminal without a size, wherever the output goes; apps/launch says the real one's.
  if (const char* const columns = std::getenv("COLUMNS");
      width_ == 0 && columns != nullptr && dist::launch_environment().mpi)
    width_ = std::atoi(columns);
  if (width_ < kNarrowest) width_ = 0;
  if (width_ == 0) return;
  colours_ = !is_set("NO_COLOR");
}

void Terminal::line(const std::string& text) {
  const std::string status = shown_;
  write((shown_.empty() ? "" : kEraseLine) + text + "\n" + status);
}

void Terminal::status(const std::vector<std::string>& fields, bool now) {
  if (!live() || (!now && Clock::now() - drawn_ < kRedraw)) return;
  drawn_ = Clock::now();
  std::string text;
  int used = 0;
  // The first is shown as far as it fits: an empty status would look like a run that hangs.
  if (!fields.empty() && length(fields.front()) >= width_)
    text = fields.front().substr(0, static_cast<std::size_t>(width_ - 1)), used = width_;
  for (const std::string& field : fields) {
    const int more = length(field) + (used > 0 ? 2 : 0);
    // The last column stays free: a cursor in it wraps on some terminals.
    if (used + more >= width_) break;
    text += (used > 0 ? "  " : "") + field;
    used += more;
  }
  shown_ = colours_ ? "\x1b[36m" + text + "\x1b[0m" : text;
  write(kEraseLine + shown_);
}

void Terminal::clear() {
  if (shown_.empty()) return;
  shown_.clear();
  write(kEraseLine);
}

std::string progress_bar(std::int64_t done, std::int64_t all, int width) {
  const int inside = std::max(width - 2, 1);
  const auto filled =
      all > 0 ? static_cast<int>(std::clamp<std::int64_t>(done * inside / all, 0, inside)) : 0;
  std::string bar(static_cast<std::size_t>(inside + 2), '.');
  std::fill_n(bar.begin() + 1, filled, '#');
  bar.front() = '[';
  bar.back() = ']';
  return bar;
}

std::int64_t evaluations_ahead(std::int64_t step, std::int64_t steps, std::int64_t every) {
  if (every == 0) return 1;
  return steps / every - (step - 1) / every + (steps % every != 0 ? 1 : 0);
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::max(seconds, 0.0) + 0.5);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

}  // namespace brigade::apps
