// SPDX-License-Identifier: MIT
// tests/fuzz/plan.cpp - what is accepted is a plan of the model, and says the same when it is written and read again.
#include "dist/bucket_plan.h"
#include "tests/fuzz/targets.h"

namespace brigade::fuzz {

void plan(std::string_view bytes) {
  static const std::vector<dist::ParameterInfo> parameters{{"conv.weight", 4096, DType::f32, 4},
                                                           {"fc.weight", 256, DType::f32, 2},
                                                           {"fc.bias", 40, DType::bf16, 1}};
  expect_error_or_success([&] {
    const dist::BucketPlan read = dist::plan_from_json(std::string(bytes), parameters);
    dist::check_plan(read, parameters);
    require(dist::plan_from_json(dist::plan_to_json(read, parameters), parameters) == read,
            "a plan survives its file");
  });
}

}  // namespace brigade::fuzz
