// SPDX-License-Identifier: MIT
// nn/optim/schedule.h - learning rates as pure functions of the step, so that resuming needs no state.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace brigade::optim {

struct ScheduleOptions {
  double peak = 0.1;                        ///< The largest rate.
  std::int64_t total_steps = 1;             ///< Steps 0 … total_steps - 1 are taken.
  double warmup = 0.05;                     ///< cosine: fraction of the steps that rise linearly to the peak.
  double min_lr = 0;                        ///< cosine: approached at total_steps.
  std::vector<double> drops = {0.5, 0.75};  ///< step: where, as fractions of total_steps.
  double drop_factor = 0.1;                 ///< step
  double rise = 0.3;                        ///< one_cycle: fraction of the steps before the peak.
  double start_divisor = 25;                ///< one_cycle: starts at peak / start_divisor …
  double end_divisor = 1e4;                 ///< one_cycle: … and ends at the start's / end_divisor.
};

/// The formulas; options and 0 <= step < total_steps are checked by Schedule.
/// peak throughout.
double constant_lr(const ScheduleOptions& options, std::int64_t step);
/// peak drop_factor^k after k of the drops.
double step_lr(const ScheduleOptions& options, std::int64_t step);
/// Rises linearly over n = warmup total_steps steps (step 0 has peak / n, step n - 1 has the peak), then half
/// a cosine from peak to min_lr (Loshchilov and Hutter, 2017; Goyal et al., 2017).
double cosine_lr(const ScheduleOptions& options, std::int64_t step);
/// Half a cosine up and half a cosine down (Smith and Topin, 2018), step by step PyTorch's OneCycleLR.
double one_cycle_lr(const ScheduleOptions& options, std::int64_t step);

/// A formula with its options.
class Schedule {
 public:
  using Formula = double (*)(const ScheduleOptions& options, std::int64_t step);
  /// Throws Error for options out of range.
  Schedule(Formula formula, ScheduleOptions options);
  /// Steps beyond the last have the last one's rate.
  double operator()(std::int64_t step) const;

 private:
  Formula formula_;
  ScheduleOptions options_;
};

/// constant, step, cosine, one_cycle.
std::vector<std::string_view> schedule_names();
/// Throws Error listing the choices for an unknown name.
Schedule make_schedule(std::string_view name, const ScheduleOptions& options);

}  // namespace brigade::optim
