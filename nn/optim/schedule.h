// SPDX-License-Identifier: MIT
// nn/optim/schedule.h - learning rates as pure functions of the step, so that resuming needs no state.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace brigade::optim {

struct ScheduleOptions {
  double lr = 0.1;                          ///< The peak.
  std::int64_t total_steps = 1;             ///< Steps 0 … total_steps - 1 are taken.
  std::int64_t warmup_steps = 0;            ///< cosine
  double min_lr = 0;                        ///< cosine: approached at total_steps.
  std::vector<double> drops = {0.5, 0.75};  ///< step: where, as fractions of total_steps.
  double drop_factor = 0.1;                 ///< step
  double rise = 0.3;                        ///< one_cycle: fraction of the steps before the peak.
  double start_divisor = 25;                ///< one_cycle: starts at lr / start_divisor …
  double end_divisor = 1e4;                 ///< one_cycle: … and ends at the start's / end_divisor.
};

/// The learning rate of step `step`, for which options were checked by check_schedule().
/// lr throughout.
double constant_lr(const ScheduleOptions& options, std::int64_t step);
/// lr drop_factor^k after k of the drops.
double step_lr(const ScheduleOptions& options, std::int64_t step);
/// Rises linearly over warmup_steps (step 0 has lr / warmup_steps, the last of them lr), then half a cosine
/// from lr to min_lr (Loshchilov and Hutter, 2017; Goyal et al., 2017).
double cosine_lr(const ScheduleOptions& options, std::int64_t step);
/// Half a cosine up and half a cosine down (Smith and Topin, 2018), step by step PyTorch's OneCycleLR.
double one_cycle_lr(const ScheduleOptions& options, std::int64_t step);

struct NamedSchedule {
  std::string_view name;
  double (*lr)(const ScheduleOptions& options, std::int64_t step);
};

/// constant, step, cosine, one_cycle. For --help: brigade::choices(schedules()).
std::span<const NamedSchedule> schedules();

/// A schedule with its options. Throws Error for an unknown name (listing the choices) or options out of
/// range.
class Schedule {
 public:
  Schedule(std::string_view name, ScheduleOptions options);
  /// Steps beyond the last have the last one's rate.
  double operator()(std::int64_t step) const;

 private:
  const NamedSchedule* schedule_;
  ScheduleOptions options_;
};

}  // namespace brigade::optim
