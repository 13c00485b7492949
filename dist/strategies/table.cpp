// SPDX-License-Identifier: MIT
// dist/strategies/table.cpp - the strategies by name. Adding one adds a line here.
#include <array>

#include "core/choices.h"
#include "dist/grad_sync.h"
#include "dist/strategies/after_backward.h"
#include "dist/strategies/bucketed.h"

namespace brigade::dist {
namespace {

template <class Sync>
std::unique_ptr<GradSync> make(BucketReducer& reducer) {
  return std::make_unique<Sync>(reducer);
}

using Parameters = std::span<const ParameterInfo>;

std::vector<int> order_of(Parameters parameters, const PlanOptions& options) {
  return make_order(options.order, parameters, options.observed);
}

BucketPlan per_parameter(Parameters parameters, const PlanOptions& options) {
  return coalesce_small(plan_per_parameter(parameters, order_of(parameters, options)),
                        options.caps.min_bytes);
}
BucketPlan flat(Parameters parameters, const PlanOptions& options) {
  return plan_flat(parameters, order_of(parameters, options));
}

constexpr std::array kStrategies{
    Strategy{"naive", "after backward, one all-reduce a parameter", per_parameter, make<AfterBackwardSync>},
    Strategy{"flat", "after backward, one all-reduce for everything", flat, make<AfterBackwardSync>},
    Strategy{"per_parameter", "during backward, one asynchronous all-reduce a parameter", per_parameter,
             make<BucketedSync>, true},
    Strategy{"bucketed", "during backward, one asynchronous all-reduce a bucket", make_plan,
             make<BucketedSync>, true, true},
};

}  // namespace

std::span<const Strategy> strategies() { return kStrategies; }

const Strategy& strategy(std::string_view name) { return choose("strategy", name, kStrategies); }

}  // namespace brigade::dist
