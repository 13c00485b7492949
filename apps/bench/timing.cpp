// SPDX-License-Identifier: MIT
// apps/bench/timing.cpp - see the header.
#include "apps/bench/timing.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string>

#include "core/stream.h"

namespace brigade::apps {
namespace {

double ticks_per_second() { return static_cast<double>(sysconf(_SC_CLK_TCK)); }

}  // namespace

Spread spread(const std::vector<double>& values) {
  if (values.empty()) return {};
  return {quantile(values, 0.05), quantile(values, 0.5), quantile(values, 0.95)};
}

std::vector<double> repeat_ms(const std::function<void()>& call, const RepeatOptions& options) {
  for (int i = 0; i < options.warmup; ++i) call();
  std::vector<double> times;
  double total = 0;
  for (int i = 0; i < options.max_calls && (i < options.min_calls || total < options.min_ms); ++i) {
    const auto begin = Clock::now();
    call();
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    total += times.back();
  }
  return times;
}

double seconds_since_start() {
  std::ifstream file("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  // The second field is the name in parentheses, which may hold spaces; the start is the 22nd, in ticks since boot.
  std::istringstream fields(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  timespec now{};
  if (!fields || clock_gettime(CLOCK_BOOTTIME, &now) != 0) return -1;
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) -
         std::stod(field) / ticks_per_second();
}

std::int64_t peak_resident_bytes() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("VmHWM:")) return 1024 * std::stoll(line.substr(6));
  return -1;
}

void reset_peak_resident() { std::ofstream("/proc/self/clear_refs") << "5\n"; }

}  // namespace brigade::apps
