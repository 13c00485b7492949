// SPDX-License-Identifier: MIT
// apps/common/load_meter.cpp - see the header.
#include "apps/common/load_meter.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>

#include "core/stream.h"

namespace brigade::apps {
namespace {

double seconds(const timeval& t) {
  return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
}

double now_seconds() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

// Processor time of everything on this machine in seconds; negative if unknown. The first line of /proc/stat:
// cpu user nice system idle iowait irq softirq steal guest guest_nice, where guest is part of user.
double machine_busy_seconds() {
  std::ifstream file("/proc/stat");
  std::string name;
  double ticks[8] = {};
  file >> name;
  for (double& t : ticks) file >> t;
  if (!file || name != "cpu") return -1;
  return (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6] + ticks[7]) /
         static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

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

}  // namespace brigade::apps
