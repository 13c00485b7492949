// SPDX-License-Identifier: MIT
// tests/fuzz/trace.cpp - a Chrome trace of a run directory, and the page's data that are made of it.
#include "apps/report/report_data.h"
#include "tests/fuzz/targets.h"

namespace brigade::fuzz {

void trace(std::string_view bytes) {
  static MemoryFile file;
  file.hold(bytes);
  expect_error_or_success([&] {
    report::RecordedRun run;
    run.config = nlohmann::json::object();
    report::read_trace(file.path(), run);
    // JSON takes text of UTF-8 only: a page must come of whatever was accepted.
    static_cast<void>(report::report_data({run}, {}).dump());
  });
}

}  // namespace brigade::fuzz
