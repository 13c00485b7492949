// SPDX-License-Identifier: MIT
// tests/fuzz/profile.cpp - a profile from anywhere, and what whatif makes of one that was accepted.
#include "apps/telemetry/profile.h"

#include <cmath>

#include "dist/what_if.h"
#include "tests/fuzz/targets.h"

namespace brigade::fuzz {

void profile(std::string_view bytes) {
  expect_error_or_success([&] {
    const telemetry::Profile read = telemetry::profile_from_json(std::string(bytes), "profile.json");
    const std::string text = telemetry::profile_to_json(read);
    require(telemetry::profile_to_json(telemetry::profile_from_json(text, "again")) == text,
            "a profile survives its file");
    // The planner tries many plans of many parameters: that would be fuzzing it, not the parser.
    if (read.step.parameters.size() > 8) return;
    const dist::Scenario scenario{.cluster = {.ranks = 4, .link = dist::Link{1e-5, 1e9}}};
    require(!std::isnan(dist::forecast(read.step, scenario).step_s), "a prediction is a number");
  });
}

}  // namespace brigade::fuzz
