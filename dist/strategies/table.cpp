// SPDX-License-Identifier: MIT
// dist/strategies/table.cpp - the strategies by name. Adding one adds a line here.
#include <array>

#include "dist/grad_sync.h"
#include "dist/strategies/after_backward.h"
#include "dist/strategies/bucketed.h"

namespace brigade::dist {
namespace {

template <class Sync>
std::unique_ptr<GradSync> make(BucketReducer& reducer) {
  return std::make_unique<Sync>(reducer);
}

BucketPlan per_parameter(std::span<const ParameterInfo> parameters, const BucketCaps&) {
  return plan_per_parameter(parameters);
}
BucketPlan flat(std::span<const ParameterInfo> parameters, const BucketCaps&) {
  return plan_flat(parameters);
}

constexpr std::array kStrategies{
    Strategy{"naive", "after backward, one all-reduce a parameter", per_parameter, make<AfterBackwardSync>},
    Strategy{"flat", "after backward, one all-reduce for everything", flat, make<AfterBackwardSync>},
    Strategy{"per_parameter", "during backward, one asynchronous all-reduce a parameter", per_parameter,
             make<BucketedSync>},
    Strategy{"bucketed", "during backward, one asynchronous all-reduce a bucket", plan_by_size,
             make<BucketedSync>},
};

}  // namespace

std::span<const Strategy> strategies() { return kStrategies; }

const Strategy& strategy(std::string_view name) {
  std::string known;
  for (const Strategy& candidate : kStrategies) {
    if (candidate.name == name) return candidate;
    known += str(known.empty() ? "" : ", ", candidate.name);
  }
  fail(str("unknown strategy \"", name, "\"; choose from ", known));
}

}  // namespace brigade::dist
