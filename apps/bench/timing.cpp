// SPDX-License-Identifier: MIT
// apps/bench/timing.cpp - see the header.
#include "apps/bench/timing.h"

#include <sys/resource.h>
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

double seconds(const timeval& t) {
  return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
}

double now_seconds() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

double ticks_per_second() { return static_cast<double>(sysconf(_SC_CLK_TCK)); }

// Processor time of everything on this machine in seconds; negative if unknown. The first line of /proc/stat:
// cpu user nice system idle iowait irq softirq steal guest guest_nice, where guest is part of user.
double machine_busy_seconds() {
  std::ifstream file("/proc/stat");
  std::string name;
  double ticks[8] = {};
  file >> name;
  for (double& t : ticks) file >> t;
  if (!file || name != "cpu") return -1;
  return (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6] + ticks[7]) / ticks_per_second();
}

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

double own_cpu_seconds() {
  double total = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    if (getrusage(who, &usage) == 0) total += seconds(usage.ru_utime) + seconds(usage.ru_stime);
  }
  return total;
}

LoadMeter::LoadMeter() : busy_(machine_busy_seconds()), wall_(now_seconds()), own_(own_cpu_seconds()) {}

double LoadMeter::foreign_cores(double own) const {
  const double busy = machine_busy_seconds(), wall = now_seconds() - wall_;
  if (busy < 0 || busy_ < 0 || wall <= 0) return -1;
  // The system counts in hundredths of a second, hence small negative results.
  return std::max(0.0, (busy - busy_ - own) / wall);
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
