// SPDX-License-Identifier: MIT
// apps/doctor/finding.cpp - see the header.
#include "apps/doctor/finding.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/check.h"

namespace brigade::doctor {
namespace {

Status status_called(std::string_view text) {
  for (const Status status : {Status::ok, Status::warning})
    if (name(status) == text) return status;
  return Status::fault;
}

}  // namespace

std::string_view name(Status status) {
  return status == Status::ok ? "ok" : status == Status::warning ? "warning" : "fault";
}

Finding ok(std::string check, std::string what) {
  return {.status = Status::ok, .check = std::move(check), .what = std::move(what)};
}
Finding warning(std::string check, std::string what, std::string remedy) {
  return {Status::warning, std::move(check), std::move(what), std::move(remedy)};
}
Finding fault(std::string check, std::string what, std::string remedy) {
  return {Status::fault, std::move(check), std::move(what), std::move(remedy)};
}

std::string line_of(const Finding& f) {
  std::string line = fmt::format("{:<8} {:<12} {}", name(f.status), f.check, f.what);
  if (!f.remedy.empty()) line += " -> " + f.remedy;
  std::replace(line.begin(), line.end(), '\n', ' ');  // Errors of others may have several lines.
  return line;
}

nlohmann::ordered_json to_json(const std::vector<Finding>& findings) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Finding& f : findings)
    list.push_back({{"check", f.check}, {"status", name(f.status)}, {"what", f.what}, {"remedy", f.remedy}});
  return {{"findings", list},
          {"warnings", count(findings, Status::warning)},
          {"faults", count(findings, Status::fault)}};
}

std::vector<Finding> findings_of(const nlohmann::ordered_json& json) {
  std::vector<Finding> out;
  for (const auto& f : json.at("findings"))
    out.push_back(
        {status_called(f.at("status").get<std::string>()), f.at("check"), f.at("what"), f.at("remedy")});
  return out;
}

int count(const std::vector<Finding>& findings, Status status) {
  return static_cast<int>(
      std::count_if(findings.begin(), findings.end(), [&](const Finding& f) { return f.status == status; }));
}

std::vector<Finding> merged(const std::vector<std::vector<Finding>>& by_rank) {
  std::vector<Finding> out = by_rank.front();
  for (std::size_t rank = 1; rank < by_rank.size(); ++rank) {
    for (Finding finding : by_rank[rank]) {
      // The same check says the same on most ranks, up to a figure: a line a rank would hide what is different.
      const auto known = std::find_if(out.begin(), out.end(), [&](const Finding& f) {
        return f.check == finding.check && f.status >= finding.status;
      });
      if (finding.status == Status::ok || known != out.end()) continue;
      finding.what = str("[rank ", rank, "] ", finding.what);
      const auto last =
          std::find_if(out.rbegin(), out.rend(), [&](const Finding& f) { return f.check == finding.check; });
      out.insert(last.base(), std::move(finding));
    }
  }
  return out;
}

}  // namespace brigade::doctor
