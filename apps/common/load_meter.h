// SPDX-License-Identifier: MIT
// apps/common/load_meter.h - how busy others keep the machine: no figure measured beside them can be trusted.
#pragma once

namespace brigade::apps {

/// Processor time of this process, all threads, in seconds.
double own_cpu_seconds();

/// Watches how busy others keep the cores: a busy neighbour makes two threads slower than one.
class LoadMeter {
 public:
  LoadMeter();
  /// Cores that all others together kept busy on average since construction (what a hypervisor took included), given
  /// `own` seconds of processor time of what is measured (all its processes). Negative: /proc/stat is not there.
  double foreign_cores(double own) const;
  double foreign_cores() const { return foreign_cores(own_cpu_seconds() - own_); }

 private:
  double busy_, wall_, own_;
};

}  // namespace brigade::apps
