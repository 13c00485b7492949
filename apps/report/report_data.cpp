// SPDX-License-Identifier: MIT
// apps/report/report_data.cpp - see the header. Times in milliseconds, of timelines in microseconds; what is unknown is
// null.
#include "apps/report/report_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "apps/report/advice.h"
#include "apps/report/text_files.h"

namespace brigade::report {
namespace {

using Json = nlohmann::ordered_json;

// What a browser draws at once. More would be no clearer and slow.
constexpr std::size_t kMaxPoints = 2000, kMaxValues = 5000, kMaxSpans = 60'000;

// Digits that mean something; by division, whose result is the double nearest to them, so that they print as such.
Json rounded(double x, double per_unit = 1e4) {
  return std::isfinite(x) ? Json(std::round(x * per_unit) / per_unit) : Json();
}

// Every k-th of n so that at most `limit` remain.
std::size_t thin(std::size_t n, std::size_t limit) {
  return std::max<std::size_t>(1, (n + limit - 1) / limit);
}

Json values_json(const std::vector<double>& values) {
  Json out = Json::array();
  const std::size_t every = thin(values.size(), kMaxValues);
  for (std::size_t i = 0; i < values.size(); i += every) out.push_back(rounded(values[i]));
  return out;
}

Json quantiles_json(const Quantiles& q) {
  return {{"p50", rounded(q.p50)}, {"p95", rounded(q.p95)}, {"p99", rounded(q.p99)}};
}

// Columns, so that the page need not rearrange them. "every": 3 means that two of three steps are left out.
Json steps_json(const std::vector<StepLine>& steps) {
  const std::size_t every = thin(steps.size(), kMaxPoints);
  Json out{{"every", every}};
  const auto column = [&](const char* name, auto value) {
    Json& list = out[name] = Json::array();
    for (std::size_t i = 0; i < steps.size(); i += every) list.push_back(value(steps[i]));
  };
  column("step", [](const StepLine& s) { return Json(s.step); });
  column("loss", [](const StepLine& s) { return rounded(s.loss, 1e6); });
  column("lr", [](const StepLine& s) { return rounded(s.lr, 1e8); });
  column("step_ms", [](const StepLine& s) { return rounded(s.step_ms); });
  column("images_per_s", [](const StepLine& s) { return rounded(s.images_per_s, 1e2); });
  column("comm_ms", [](const StepLine& s) { return rounded(s.comm_ms); });
  column("hidden_ms", [](const StepLine& s) { return rounded(s.hidden_ms); });
  column("exposed_ms", [](const StepLine& s) { return rounded(s.exposed_ms); });
  column("bus_gb_s", [](const StepLine& s) { return rounded(s.bus_gb_s); });
  return out;
}

Json buckets_json(const std::vector<BucketSummary>& buckets) {
  Json out = Json::array();
  for (const BucketSummary& b : buckets) {
    out.push_back({{"bucket", b.bucket},
                   {"label", b.label},
                   {"parameters", b.parameters},
                   {"parameter_count", b.parameter_count},
                   {"bytes", b.bytes},
                   {"first_ready_ms", rounded(b.first_ready_ms)},
                   {"ready_ms", rounded(b.ready_ms)},
                   {"launch_ms", rounded(b.launch_ms)},
                   {"start_ms", rounded(b.start_ms)},
                   {"end_ms", rounded(b.end_ms)},
                   {"exposed_ms", rounded(b.exposed_ms)},
                   {"last_rank", b.last_rank < 0 ? Json() : Json(b.last_rank)},
                   {"last_share", rounded(b.last_share)},
                   {"latency", quantiles_json(b.latency)},
                   {"latency_ms", values_json(b.latency_ms)}});
  }
  return out;
}

// Spans as short arrays and names by number: sixty-four ranks have a hundred thousand of them.
//   spans    [name, kind, begin_us, end_us, depth]; name counts in "names", kind in "kinds"
//   buckets  [bucket, first_ready_us, last_ready_us, launch_us, start_us, end_us]
Json timeline_json(const Timeline& timeline) {
  Json names = Json::array(), ranks = Json::array();
  std::unordered_map<std::string, std::size_t> index;
  const auto us = [](double time) { return rounded(time, 10); };
  for (const RankTimeline& rank : timeline.ranks) {
    Json spans = Json::array(), buckets = Json::array();
    for (const ComputeSpan& s : rank.spans) {
      const auto [at, fresh] = index.emplace(s.name, index.size());
      if (fresh) names.push_back(s.name);
      spans.push_back({at->second, static_cast<int>(s.kind), us(s.begin_us), us(s.end_us), s.depth});
    }
    for (const BucketSpan& b : rank.buckets)
      buckets.push_back({b.bucket, us(b.first_ready_us), us(b.last_ready_us), us(b.launch_us), us(b.start_us),
                         us(b.end_us)});
    ranks.push_back({{"rank", rank.rank}, {"spans", std::move(spans)}, {"buckets", std::move(buckets)}});
  }
  return {{"step", timeline.step},
          {"length_us", us(timeline.length_us)},
          {"kinds", {"forward", "backward", "optimizer", "data", "other"}},
          {"names", std::move(names)},
          {"ranks", std::move(ranks)}};
}

std::size_t spans_of(const Timeline& timeline) {
  std::size_t spans = 0;
  for (const RankTimeline& rank : timeline.ranks) spans += rank.spans.size() + rank.buckets.size();
  return spans;
}

// The first is always drawn, however large.
Json timelines_json(const std::vector<Timeline>& timelines, Json& notes) {
  Json out = Json::array();
  std::size_t spans = 0;
  for (const Timeline& timeline : timelines) {
    spans += spans_of(timeline);
    if (spans > kMaxSpans && !out.empty()) break;
    out.push_back(timeline_json(timeline));
  }
  if (out.size() < timelines.size())
    notes.push_back(
        fmt::format("The trace has {} steps; the first {} are drawn.", timelines.size(), out.size()));
  return out;
}

// {"label", "value", "unit"}; a figure that the files lack is left out.
Json summary_json(const RecordedRun& run, const RunSummary& s) {
  Json out = Json::array();
  const auto add = [&](bool known, const char* label, double value, const char* unit) {
    if (known) out.push_back({{"label", label}, {"value", rounded(value)}, {"unit", unit}});
  };
  add(s.steps > 0, "Step", s.step_ms.p50, "ms");
  add(s.has_rate, "Throughput", s.images_per_s, "images/s");
  const bool talks = s.has_communication && s.ranks > 1;
  add(talks, "Communication", s.comm_ms, "ms");
  add(talks, "Exposed", s.exposed_ms, "ms");
  if (talks && is_noticeable(s)) out.back()["stress"] = true;
  add(talks && s.waited_ms > 0, "Standing still", s.waited_ms, "ms");
  add(talks && s.comm_ms > 0, "Hidden", s.overlap_pct, "%");
  add(talks && s.has_bus, "Bus bandwidth", s.bus_gb_s, "GB/s");
  if (!run.evaluations.empty())
    add(std::isfinite(run.evaluations.back().accuracy), "Test accuracy",
        100 * run.evaluations.back().accuracy, "%");
  return out;
}

// What the header lists: label and text, as far as config.json says.
Json facts_json(const RecordedRun& run) {
  Json out = Json::array();
  const auto add = [&](const char* label, const nlohmann::json& from, const char* key) {
    const auto found = from.find(key);
    if (found == from.end() || found->is_null() || found->is_structured()) return;
    const std::string text = found->is_string() ? found->get<std::string>() : found->dump();
    if (!text.empty()) out.push_back({{"label", label}, {"value", text}});
  };
  const nlohmann::json none = nlohmann::json::object();
  const auto found = run.config.find("run");
  const nlohmann::json& facts = found != run.config.end() && found->is_object() ? *found : none;
  add("Model", run.config, "model");
  add("Precision", run.config, "precision");
  add("Parameters", facts, "parameters");
  add("Ranks", facts, "ranks");
  add("Threads a rank", facts, "threads");
  add("Backend", facts, "backend");
  add("Start", facts, "launcher");
  add("Modelled network", run.config, "net");
  add("Synchronisation", run.config, "sync");
  if (!run.plan_rule.empty()) out.push_back({{"label", "Bucket plan"}, {"value", run.plan_rule}});
  add("Gradient hook", run.config, "comm_hook");
  add("Images a step", facts, "global_batch");
  add("Data", facts, "data");
  for (const auto& [label, key] : {std::pair{"Machine", "machine"},
                                   {"Machine", "processor"},
                                   {"Started", "date"},
                                   {"Command", "command"}})
    add(label, facts.contains(key) ? facts : run.config, key);
  return out;
}

Json evaluations_json(const std::vector<Evaluation>& evaluations) {
  Json out = Json::array();
  for (const Evaluation& e : evaluations)
    out.push_back({{"epoch", e.epoch},
                   {"step", e.step},
                   {"loss", rounded(e.loss, 1e6)},
                   {"accuracy", rounded(e.accuracy, 1e6)}});
  return out;
}

Json run_json(const RecordedRun& run, const RunSummary& s) {
  Json changes = Json::array();
  for (const PlanChange& change : run.plan_changes)
    changes.push_back({{"step", change.step}, {"plan_epoch", change.plan_epoch}, {"text", change.text}});
  return {{"title", title_of(run)},
          {"directory", run.directory.string()},
          {"facts", facts_json(run)},
          {"advice", advice(s)},
          {"warm_up", s.warm_up},
          {"summary", summary_json(run, s)},
          {"steps", steps_json(run.steps)},
          {"step_ms", {{"values", values_json(s.step_ms_values)}, {"quantiles", quantiles_json(s.step_ms)}}},
          {"evaluations", evaluations_json(run.evaluations)},
          {"plan_changes", std::move(changes)},
          {"buckets", buckets_json(s.buckets)}};
}

Json strategy_json(const Strategy& strategy, const RunSummary& s) {
  Json out{{"name", strategy.name},
           {"step_ms", {{"values", values_json(s.step_ms_values)}, {"quantiles", quantiles_json(s.step_ms)}}},
           {"images_per_s", s.has_rate ? rounded(s.images_per_s) : Json()},
           {"comm_ms", s.has_communication ? rounded(s.comm_ms) : Json()},
           {"hidden_ms", s.has_communication ? rounded(s.hidden_ms) : Json()},
           {"exposed_ms", s.has_communication ? rounded(s.exposed_ms) : Json()},
           {"overlap_pct", s.has_communication ? rounded(s.overlap_pct) : Json()},
           {"buckets", buckets_json(s.buckets)}};
  // Whoever ran the comparison says whether it found the strategies equal; silence is not "yes".
  if (const auto facts = strategy.files.config.find("run");
      facts != strategy.files.config.end() && facts->is_object())
    if (const auto equal = facts->find("equal_to_naive"); equal != facts->end() && equal->is_boolean())
      out["equal_to_naive"] = equal->get<bool>();
  // Of a step in the middle: the first of a window is the coldest.
  if (const auto& all = strategy.files.timelines; !all.empty())
    out["timeline"] = timeline_json(all[all.size() / 2]);
  return out;
}

// [{"key", "values": [one a run]}] of the flags in which the runs differ.
Json differences_json(const std::vector<RecordedRun>& runs) {
  std::vector<std::pair<std::string, nlohmann::json>> flat;
  for (const auto& [key, value] : runs.front().config.items())
    if (!value.is_object()) flat.emplace_back(key, value);
  Json out = Json::array();
  for (const auto& [key, first] : flat) {
    Json values = Json::array();
    bool differs = false;
    for (const RecordedRun& run : runs) {
      const auto found = run.config.find(key);
      const nlohmann::json value = found == run.config.end() ? nlohmann::json() : *found;
      differs = differs || value != first;
      values.push_back(value.is_string() ? value.get<std::string>() : value.dump());
    }
    if (differs) out.push_back({{"key", key}, {"values", std::move(values)}});
  }
  return out;
}

// "resnet18, 4 ranks × 2 threads", as far as known.
std::string world_of(const RecordedRun& run) {
  const std::string where = (run.directory / "config.json").string();
  std::string out = Members(run.config, where).text("model", "run");
  const auto found = run.config.find("run");
  if (found == run.config.end() || !found->is_object()) return out;
  const Members facts(*found, where + ": run");
  const std::int64_t ranks = facts.whole("ranks", 0), threads = facts.whole("threads", 0);
  if (ranks > 0) out += fmt::format(", {} rank{}", ranks, ranks == 1 ? "" : "s");
  if (ranks > 0 && threads > 0) out += fmt::format(" × {} thread{}", threads, threads == 1 ? "" : "s");
  return out;
}

}  // namespace

std::string title_of(const RecordedRun& run) {
  const std::string where = (run.directory / "config.json").string();
  const std::string sync = Members(run.config, where).text("sync");
  return sync.empty() ? world_of(run) : world_of(run) + ", " + sync;
}

Json report_data(const std::vector<RecordedRun>& runs, const std::vector<Strategy>& strategies,
                 const std::string& of) {
  Json notes = Json::array();
  for (const std::string& note : runs.front().notes) notes.push_back(note);
  Json out = run_json(runs.front(), summarize(runs.front()));
  out["timelines"] = timelines_json(runs.front().timelines, notes);
  out["strategies"] = Json::array();
  std::vector<NamedRun> named;
  for (const Strategy& strategy : strategies) {
    named.push_back({strategy.name, summarize(strategy.files)});
    out["strategies"].push_back(strategy_json(strategy, named.back().run));
    if (strategy.name == of) continue;  // Its notes are there already.
    for (const std::string& note : strategy.files.notes) notes.push_back(strategy.name + ": " + note);
  }
  if (!strategies.empty()) {
    out["title"] = fmt::format("{}, {} strateg{}", world_of(runs.front()), strategies.size(),
                               strategies.size() == 1 ? "y" : "ies");
    out["advice"] = advice(named);
    out["of"] = of;
  }
  out["runs"] = Json::array();
  for (std::size_t i = 1; i < runs.size(); ++i) {
    out["runs"].push_back(run_json(runs[i], summarize(runs[i])));
    for (const std::string& note : runs[i].notes) notes.push_back(title_of(runs[i]) + ": " + note);
  }
  if (runs.size() > 1) out["differences"] = differences_json(runs);
  out["notes"] = std::move(notes);
  return out;
}

}  // namespace brigade::report
