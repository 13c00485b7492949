// SPDX-License-Identifier: MIT
// apps/doctor/finding.h - what the doctor says about one thing: how it is, and what to do about it.
// Read next: apps/doctor/checks.h.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace brigade::doctor {

/// A warning costs speed or may trouble somebody; with a fault, training fails or computes something else.
enum class Status { ok, warning, fault };
std::string_view name(Status status);

struct Finding {
  Status status = Status::ok;
  std::string check;        ///< One word: "openmp".
  std::string what;         ///< A line without its full stop.
  std::string remedy = {};  ///< A sentence; empty if and only if all is well.
};

Finding ok(std::string check, std::string what);
Finding warning(std::string check, std::string what, std::string remedy);
Finding fault(std::string check, std::string what, std::string remedy);

/// "fault    openmp      two runtimes are loaded: … -> Remove …": always one line.
std::string line_of(const Finding& finding);

/// {"findings": [{"check", "status", "what", "remedy"}, …], "warnings": 1, "faults": 0}
nlohmann::ordered_json to_json(const std::vector<Finding>& findings);
/// The reverse.
std::vector<Finding> findings_of(const nlohmann::ordered_json& json);

int count(const std::vector<Finding>& findings, Status status);

/// Rank 0's findings, and behind each what is not well elsewhere and does not read alike, with its rank.
std::vector<Finding> merged(const std::vector<std::vector<Finding>>& by_rank);

}  // namespace brigade::doctor
