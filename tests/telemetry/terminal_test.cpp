// SPDX-License-Identifier: MIT
// tests/telemetry/terminal_test.cpp - words for people; tests/apps/telemetry_test.py looks at a real terminal.
#include "apps/common/terminal.h"

#include "apps/telemetry/recorder.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::apps;

TEST_CASE("a bar fills from the left, to its end and not beyond", "[telemetry]") {
  REQUIRE(progress_bar(0, 10, 12) == "[..........]");
  REQUIRE(progress_bar(4, 10, 12) == "[####......]");
  REQUIRE(progress_bar(10, 10, 12) == "[##########]");
  REQUIRE(progress_bar(11, 10, 12) == "[##########]");
  REQUIRE(progress_bar(0, 0, 4) == "[..]");
}

TEST_CASE("evaluations ahead are those after every so many steps, and one at the end", "[telemetry]") {
  REQUIRE(evaluations_ahead(1, 10, 0) == 1);
  REQUIRE(evaluations_ahead(1, 12, 4) == 3);
  REQUIRE(evaluations_ahead(4, 12, 4) == 3);  // The step is over, its evaluation not yet.
  REQUIRE(evaluations_ahead(5, 12, 4) == 2);
  REQUIRE(evaluations_ahead(12, 12, 4) == 1);
  REQUIRE(evaluations_ahead(9, 14, 4) == 2);  // After 12 and 14.
  REQUIRE(evaluations_ahead(1, 3, 4) == 1);
}

TEST_CASE("durations are read as people write them", "[telemetry]") {
  REQUIRE(duration_text(0) == "0 s");
  REQUIRE(duration_text(59.4) == "59 s");
  REQUIRE(duration_text(59.6) == "1:00");
  REQUIRE(duration_text(125) == "2:05");
  REQUIRE(duration_text(3723) == "1:02:03");
  REQUIRE(duration_text(-3) == "0 s");
}

TEST_CASE("a rank is called late only if it stands out", "[telemetry]") {
  telemetry::LateSteps late{.steps = 100, .ranks = {{10, 1}, {83, 249}, {7, 1}}};
  REQUIRE(late.text() == "rank 1 was last in 83 % of the steps, 3.0 ms after the median rank");
  late.ranks = {{40, 1}, {35, 1}, {25, 1}};
  REQUIRE(late.text().empty());
  late.ranks = {{60, 1}, {40, 1}};  // Of two ranks one is last more often than the other.
  REQUIRE(late.text().empty());
  late.ranks = {{100, 1}};
  REQUIRE(late.text().empty());
}
