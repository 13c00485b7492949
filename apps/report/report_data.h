// SPDX-License-Identifier: MIT
// apps/report/report_data.h - runs become the JSON that the page draws: the page reads nothing else, and computes no
// figure that is in here. The members are described where they are made, in report_data.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/report/recorded_run.h"
#include "apps/report/run_summary.h"

namespace brigade::report {

/// One strategy of a comparison on the same data, itself a run directory.
struct Strategy {
  std::string name;
  RecordedRun files;
};

/// The page's JSON: `runs[0]` in full, its strategies side by side, and the other runs compared with it. At least one
/// run. `of` names the strategy that runs[0] is, if it is one of them.
nlohmann::ordered_json report_data(const std::vector<RecordedRun>& runs,
                                   const std::vector<Strategy>& strategies, const std::string& of = "");

/// "resnet18, 4 ranks × 2 threads, bucketed": what identifies a run on a page, as far as its configuration says.
std::string title_of(const RecordedRun& run);

}  // namespace brigade::report
