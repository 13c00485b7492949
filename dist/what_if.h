// SPDX-License-Identifier: MIT
// dist/what_if.h - what a recorded step would take with other ranks, links, algorithms, strategies, plans and batches:
// the planner's own model (dist/planner.h), fed with a profile instead of with live measurements. Pure functions.
// Read before: dist/step_profile.h.
//
// What is assumed
//   compute   Every rank computes as the recorded one did. Forward and backward grow in proportion to the batch, the
//             optimizer does not. A collective waits for the slowest of p ranks, whose times are independent and normal
//             with the spread that the recorded rank shows from step to step.
//   network   An all-reduce of n bytes takes α messages + β bytes as its algorithm counts them, and an overhead.
//             The wire carries one bucket at a time; all links are alike; the arithmetic of sums is free.
//   schedule  As in dist/strategies: in plan order, each when its gradients and the wire are free; naive and flat when
//             backward is over. The roll call goes first; the optimizer waits for the last bucket.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dist/plan_makers.h"
#include "dist/step_profile.h"

namespace brigade::dist {

/// Ranks and what lies between them.
struct Cluster {
  int ranks = 1;
  /// Between any two ranks, or between hosts, where the ranks of a host share it. None: the network of the record.
  std::optional<Link> link = {};
  int ranks_per_host = 1;  ///< More than 1: an all-reduce adds up inside hosts first, then between them.
  Link in_host = {};
  /// Between hosts, or of all ranks; a name of all_reduce_algorithms(), or auto, which is ring.
  std::string algorithm = "auto";
};

/// ring, tree, halving_doubling, naive; as in dist/algorithms/algorithms.h.
std::vector<std::string_view> all_reduce_algorithms();
/// Messages one after another, and bytes on the busiest link. Throws Error listing the choices for an unknown name.
Traffic all_reduce_traffic(std::string_view algorithm, std::int64_t bytes, int ranks);

/// What an all-reduce takes on the links of `cluster`, which must name one; nothing with one rank.
CostModel all_reduce_cost(const Cluster& cluster);

/// What a collective took longer than links explain, in the recorded run: its start behind the one before, and, if the
/// network was a modelled one, how late ranks wake up from it.
double overhead_s(const StepProfile& profile);

/// With overhead. Without a link the recorded run's network, scaled to other ranks: Error if that run had one rank.
CostModel cost_model(const StepProfile& profile, const Cluster& cluster);

struct Scenario {
  Cluster cluster = {};
  std::string strategy = "bucketed";  ///< A name of strategies().
  PlanOptions plan = {.rule = "auto"};
  double batch = 1;  ///< Images of a rank, relative to the record.
  double compute =
      1;  ///< Time of all computing, relative to the record: for ranks that share cores, for example.
  std::optional<double> spread = {};      ///< Instead of the measured one.
  std::optional<double> overhead_s = {};  ///< Instead of the measured one.
};

struct Forecast {
  BucketPlan plan;
  double compute_s = 0;        ///< Forward, backward and optimizer of an average rank.
  double straggler_s = 0;      ///< That the slowest rank takes longer.
  double communication_s = 0;  ///< Of all buckets.
  double exposed_s = 0;        ///< From the end of backward to the last bucket's.
  double step_s = 0;
  double one_rank_s = 0;  ///< A step of one rank alone with the same batch.
  /// Of weak scaling: images a second and rank, relative to one rank alone.
  double efficiency() const { return one_rank_s / step_s; }
};

/// Throws Error for a scenario that names unknown things or is out of range.
Forecast forecast(const StepProfile& profile, const Scenario& scenario);

/// Mean of the largest of n independent standard normal values, by Blom's approximation (1958); 0 for n = 1.
double expected_maximum(int n);

}  // namespace brigade::dist
