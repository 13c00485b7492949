// SPDX-License-Identifier: MIT
// core/fault_spec.cpp - the tables of points and actions, and the words between ':' and ';'.
#include "core/fault_spec.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/choices.h"

namespace brigade {
namespace {

struct ActionInfo {
  std::string_view name;
  FaultAction action;
};
constexpr ActionInfo kActions[] = {
    {"throw", FaultAction::throw_error}, {"delay", FaultAction::delay},   {"hang", FaultAction::hang},
    {"exit", FaultAction::exit},         {"kill", FaultAction::kill},     {"stop", FaultAction::stop},
    {"nan", FaultAction::nan},           {"flip", FaultAction::flip_bit}, {"short", FaultAction::short_write},
    {"enospc", FaultAction::enospc},     {"eio", FaultAction::eio},
};

bool can_happen(FaultAction action, const FaultPointInfo& point) {
  switch (action) {
    case FaultAction::nan:
      return point.kind == FaultKind::values;
    case FaultAction::flip_bit:
      return point.kind == FaultKind::values || point.at == FaultAt::checkpoint_write;
    case FaultAction::short_write:
      return point.at == FaultAt::checkpoint_write;
    case FaultAction::enospc:
    case FaultAction::eio:
      return point.kind == FaultKind::io;
    default:
      return true;
  }
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

template <class T>
T number(std::string_view what, std::string_view text, T least, T most) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  BRIGADE_CHECK(error == std::errc{} && end == text.data() + text.size() && value >= least && value <= most,
                "fault: ", what, " must be a number from ", least, " to ", most, "; got \"", text, "\"");
  return value;
}

std::chrono::milliseconds duration(std::string_view text) {
  const bool ms = text.ends_with("ms");
  BRIGADE_CHECK(ms || text.ends_with("s"), "fault: delay must be like 200ms or 2s; got \"", text, "\"");
  const auto count = number<std::int64_t>("delay", text.substr(0, text.size() - (ms ? 2 : 1)), 0, 86'400'000);
  return ms ? std::chrono::milliseconds(count) : std::chrono::seconds(count);
}

// "delay=200ms", "exit=3", "kill".
void read_action(FaultClause& clause, std::string_view text) {
  const std::size_t equals = text.find('=');
  const std::string_view word = text.substr(0, equals);
  clause.action = choose("fault action", word, kActions).action;
  const bool has_value = equals != std::string_view::npos;
  const std::string_view value = has_value ? text.substr(equals + 1) : "";
  if (clause.action == FaultAction::delay)
    clause.delay = duration(value);
  else if (clause.action == FaultAction::exit && has_value)
    clause.exit_code = number("exit", value, 0, 255);
  else
    BRIGADE_CHECK(!has_value, "fault: action ", word, " takes no value; got \"", text, "\"");
}

FaultClause read_clause(std::string_view text) {
  const std::vector<std::string_view> parts = split(text, ':');
  const FaultPointInfo& point = choose("fault point", parts[0], fault_points());
  FaultClause clause{.at = point.at};
  bool has_action = false, has_hit = false, has_p = false;
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::size_t equals = std::min(parts[i].find('='), parts[i].size());
    const std::string_view key = parts[i].substr(0, equals);
    const std::string_view value = parts[i].substr(std::min(equals + 1, parts[i].size()));
    if (key == "action") {
      read_action(clause, value);
      has_action = true;
    } else if (key == "hit") {
      clause.hit = number<std::int64_t>("hit", value, 1, std::int64_t{1} << 60);
      has_hit = true;
    } else if (key == "p") {
      clause.p = number("p", value, 0.0, 1.0);
      has_p = true;
    } else if (key == "rank") {
      clause.rank = number("rank", value, 0, 1'000'000);
    } else if (key == "step") {
      clause.step = number<std::int64_t>("step", value, 1, std::int64_t{1} << 60);
    } else if (key == "label") {
      clause.label = value;
    } else {
      fail(str("fault: unknown word \"", parts[i], "\"; choose from hit, p, rank, step, label, action"));
    }
  }
  BRIGADE_CHECK(has_action, "fault: needs an action; got \"", text, "\"; write ", parts[0], ":action=throw");
  BRIGADE_CHECK(!has_hit || !has_p, "fault: hit and p exclude each other; got \"", text, "\"");
  if (has_p) clause.hit = 0;
  std::string choices;
  for (const ActionInfo& action : kActions)
    if (can_happen(action.action, point)) choices += str(choices.empty() ? "" : ", ", action.name);
  BRIGADE_CHECK(can_happen(clause.action, point), "fault: ", name(clause.action), " cannot happen at ",
                point.name, "; choose from ", choices);
  return clause;
}

}  // namespace

const std::vector<FaultPointInfo>& fault_points() {
  using enum FaultKind;
  static const std::vector<FaultPointInfo> points{
      {"start", FaultAt::start, plain, "a rank begins, before it meets the others"},
      {"wrapping", FaultAt::wrapping, plain, "Ddp is about to compare and wrap the model"},
      {"data", FaultAt::data, values, "a training batch's images"},
      {"activation", FaultAt::activation, values, "what a layer returns; its label is the layer's number"},
      {"weight", FaultAt::weight, values, "a parameter, before a step; its label is the parameter's name"},
      {"backward", FaultAt::backward, plain, "a synchronised backward begins"},
      {"gradient", FaultAt::gradient, values, "a gradient is ready; its label is the parameter's name"},
      {"bucket", FaultAt::bucket, plain, "a bucket is launched"},
      {"optimizer", FaultAt::optimizer, plain, "the optimizer steps"},
      {"evaluation", FaultAt::evaluation, plain, "a batch of the evaluation"},
      {"save", FaultAt::save, plain, "a model or checkpoint is saved"},
      {"exit", FaultAt::exit, plain, "a rank has done its work, before it leaves the others"},
      {"checkpoint.mkdir", FaultAt::checkpoint_mkdir, io, "a folder is made"},
      {"checkpoint.open", FaultAt::checkpoint_open, io, "a file is opened for writing"},
      {"checkpoint.write", FaultAt::checkpoint_write, io, "bytes are written"},
      {"checkpoint.fsync", FaultAt::checkpoint_fsync, io, "a file or folder is made durable"},
      {"checkpoint.rename", FaultAt::checkpoint_rename, io, "a file or folder gets its final name"},
  };
  return points;
}

std::string_view name(FaultAt at) { return fault_points()[static_cast<std::size_t>(at)].name; }

std::string_view name(FaultAction action) {
  return std::find_if(std::begin(kActions), std::end(kActions),
                      [&](const ActionInfo& info) { return info.action == action; })
      ->name;
}

FaultSpec parse_fault_spec(std::string_view text) {
  FaultSpec spec;
  for (const std::string_view part : split(text, ';')) {
    if (part.empty()) continue;
    if (part.starts_with("seed="))
      spec.seed = number<std::uint64_t>("seed", part.substr(5), 0, UINT64_MAX);
    else
      spec.clauses.push_back(read_clause(part));
  }
  BRIGADE_CHECK(!spec.clauses.empty(), "fault: needs a fault; got \"", text, "\"; write POINT:action=ACTION");
  return spec;
}

}  // namespace brigade
