// SPDX-License-Identifier: MIT
// dist/step_profile.h - a recorded run as one typical step: what a rank computes and when its gradients are ready, and
// what collectives cost meanwhile. Drawn from a ledger; everything that dist/what_if.h needs to know of a run.
// Read before: dist/ledger.h, dist/planner.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dist/emulated/network_model.h"
#include "dist/ledger.h"
#include "dist/planner.h"

namespace brigade::dist {

/// Medians over steps, of one rank.
struct StepProfile {
  // What ran.
  int ranks = 1;
  std::int64_t images = 0;         ///< Of a rank, in a step.
  std::string algorithm = "auto";  ///< LaunchOptions::algorithm
  std::optional<Link> link = {};   ///< Of the modelled network; none: the real one.
  std::int64_t trailing_bytes =
      0;  ///< All-reduced beside the optimizer, for which the step waits; 0: nothing.

  // What it computed.
  std::vector<ParameterInfo> parameters;  ///< In order of registration.
  std::vector<double> ready_s;            ///< By index: when its gradient is final, from backward's begin.
  double before_s = 0;                    ///< Data, forward and loss.
  double backward_s = 0;
  double after_s = 0;  ///< Optimizer.
  double spread = 0;   ///< Relative standard deviation of before_s + backward_s from step to step.

  // What it communicated.
  BucketPlan plan;                      ///< The last one.
  std::vector<CostSample> collectives;  ///< The buckets of `plan`, then the roll call.
  double gap_s =
      0;  ///< From the end of one bucket to the start of the next, of which all gradients are ready.

  // What came of it.
  std::size_t steps = 0;  ///< That the medians are of.
  double step_s = 0, communication_s = 0, exposed_s = 0;
};

/// From the steps that the ledger still has of the last plan, without the first two of them, which touch new memory.
/// `parameters` by index of the plan's order. The other fields under "What ran" are left to the caller. Error if no
/// such step was recorded in a StepScope.
StepProfile make_profile(const Ledger& ledger, const BucketPlan& plan, std::vector<ParameterInfo> parameters,
                         int ranks);

}  // namespace brigade::dist
