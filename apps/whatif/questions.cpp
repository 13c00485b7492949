// SPDX-License-Identifier: MIT
// apps/whatif/questions.cpp - see the header.
#include "apps/whatif/questions.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "dist/grad_sync.h"

namespace brigade::apps {
namespace {

using telemetry::Profile;

// Its own buckets, exactly.
dist::PlanOptions recorded_plan(const Profile& profile) {
  return {.rule = "file", .json = dist::plan_to_json(profile.step.plan, profile.step.parameters)};
}

// Rules that plan while training goes on end with a plan of their own; a file's path is no rule.
bool replans(const Profile& profile) {
  const auto rules = dist::plan_rules();
  return std::any_of(rules.begin(), rules.end(),
                     [&](const dist::PlanRule& rule) { return rule.name == profile.plan && rule.replans; });
}

// "auto", "recorded", or a rule of caps with its cap in MiB behind a colon: "size:4", "torch".
dist::PlanOptions parse_plan(const std::string& text, const Profile& record) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string name = text.substr(0, colon), cap = text.substr(std::min(colon + 1, text.size()));
  if (text == "recorded") return recorded_plan(record);
  const bool capped = name == "size" || name == "torch" || name == "torch_rebuilt";
  BRIGADE_CHECK(text == "auto" || (capped && (colon == text.size() || !cap.empty())),
                "--plan: must be auto, recorded, or size, torch or torch_rebuilt with a cap in MiB, as in "
                "size:4; got \"",
                text, "\"");
  dist::PlanOptions options{.rule = name};
  if (name == "auto") return options;
  double mib = name == "size" ? 4 : 25;  // Their defaults.
  if (!cap.empty()) {
    const auto [end, error] = std::from_chars(cap.data(), cap.data() + cap.size(), mib);
    BRIGADE_CHECK(error == std::errc() && end == cap.data() + cap.size(),
                  "--plan: the cap must be a number of MiB; got \"", text, "\"");
  }
  options.caps.bytes = dist::cap_from_mib("--plan", mib);
  options.caps.first_bytes = std::min(options.caps.first_bytes, options.caps.bytes);
  return options;
}

struct InHost {
  int ranks = 1;
  dist::Link link = {};
};
InHost parse_in_host(const std::string& text) {
  InHost out;
  if (text.empty()) return out;
  const std::size_t colon = std::min(text.find(':'), text.size());
  const auto [end, error] = std::from_chars(text.data(), text.data() + colon, out.ranks);
  BRIGADE_CHECK(error == std::errc() && end == text.data() + colon && colon < text.size() && out.ranks >= 1,
                "--in-host: needs RANKS:LINK, as in 8:400gbit,1us; got \"", text, "\"");
  out.link = dist::parse_link("--in-host", text.substr(colon + 1));
  return out;
}

template <class T>
std::vector<T> or_recorded(const std::vector<T>& given, T recorded) {
  return given.empty() ? std::vector<T>{std::move(recorded)} : given;
}

std::string network_text(const std::string& net, const Profile& record) {
  if (!net.empty()) return net;
  return record.step.link ? "network as recorded, " + link_text(*record.step.link) : "network as recorded";
}

}  // namespace

std::string link_text(const dist::Link& link) {
  return fmt::format("{:.4g} Gbit/s, {:.4g} us", 8e-9 * link.bytes_per_s, 1e6 * link.latency_s);
}

std::vector<Question> ask(const QuestionFlags& flags, const Profile& record) {
  const bool several =
      std::any_of(flags.ranks.begin(), flags.ranks.end(), [](int ranks) { return ranks > 1; });
  BRIGADE_CHECK(!several || !flags.nets.empty() || record.step.link || record.step.ranks > 1,
                "--net: is needed; the recorded run had one rank and tells nothing of a network");
  BRIGADE_CHECK(flags.in_host.empty() || !flags.nets.empty() || record.step.link,
                "--in-host: needs --net, the link between hosts");
  const std::vector<std::string> strategies = or_recorded(flags.strategies, record.strategy);
  BRIGADE_CHECK(flags.plans.empty() ||
                    std::any_of(strategies.begin(), strategies.end(),
                                [](const std::string& name) { return dist::strategy(name).plans_by_rule; }),
                "--plan: needs --strategy bucketed; ", strategies.front(), " has a plan of its own");
  const InHost in_host = parse_in_host(flags.in_host);
  std::vector<Question> out;
  for (const std::string& net : or_recorded(flags.nets, std::string()))
    for (const std::string& algorithm : or_recorded(flags.algorithms, record.step.algorithm))
      for (const std::int64_t images : or_recorded(flags.batch_sizes, record.step.images))
        for (const std::string& strategy : strategies) {
          const bool choice = dist::strategy(strategy).plans_by_rule;
          const bool has_plan = dist::strategy(record.strategy).plans_by_rule && !replans(record);
          const std::string recorded = has_plan ? "recorded" : "auto";
          const auto plans = choice ? or_recorded(flags.plans, recorded) : std::vector{std::string()};
          for (const std::string& plan : plans) {
            Question q{.text = strategy, .images = images, .scenario = {}};
            if (choice) q.text += ", plan " + plan;
            q.text += fmt::format(", batch {} a rank, {}", images, network_text(net, record));
            if (!flags.in_host.empty()) q.text += ", in hosts " + flags.in_host;
            q.text += ", " + (algorithm == "auto" ? "ring" : algorithm);
            q.scenario.cluster = {.link = net.empty() ? record.step.link : dist::parse_link("--net", net),
                                  .ranks_per_host = in_host.ranks,
                                  .in_host = in_host.link,
                                  .algorithm = algorithm};
            q.scenario.strategy = strategy;
            if (choice) q.scenario.plan = parse_plan(plan, record);
            q.scenario.batch = static_cast<double>(images) / static_cast<double>(record.step.images);
            if (flags.spread_percent) q.scenario.spread = *flags.spread_percent / 100;
            if (flags.overhead_us) q.scenario.overhead_s = 1e-6 * *flags.overhead_us;
            out.push_back(std::move(q));
          }
        }
  return out;
}

dist::Scenario with_ranks(const Question& question, int ranks, const QuestionFlags& flags,
                          const Profile& record) {
  dist::Scenario scenario = question.scenario;
  scenario.cluster.ranks = ranks;
  if (flags.cores > 0)
    scenario.compute =
        std::max(1.0, static_cast<double>(ranks) * record.threads / flags.cores) / record.load();
  return scenario;
}

dist::Scenario scenario_of(const Profile& run, const Profile& record) {
  const auto same = [](const dist::ParameterInfo& a, const dist::ParameterInfo& b) {
    return a.name == b.name && a.bytes == b.bytes && a.dtype == b.dtype;
  };
  BRIGADE_CHECK(std::equal(run.step.parameters.begin(), run.step.parameters.end(),
                           record.step.parameters.begin(), record.step.parameters.end(), same),
                "--check: the run has other parameters than the record (", run.model, " and ", record.model,
                ")");
  BRIGADE_CHECK(run.threads == record.threads, "--check: the run has ", run.threads,
                " compute threads a rank, the record ", record.threads,
                ": how computing changes is not modelled");
  BRIGADE_CHECK(run.step.ranks == 1 || run.step.link || (!record.step.link && record.step.ranks > 1),
                "--check: the run was on a real network, which the record has not seen");
  const bool choice = dist::strategy(run.strategy).plans_by_rule;
  return {.cluster = {.ranks = run.step.ranks, .link = run.step.link, .algorithm = run.step.algorithm},
          .strategy = run.strategy,
          .plan = choice && !replans(run) ? recorded_plan(run) : dist::PlanOptions{.rule = "auto"},
          .batch = static_cast<double>(run.step.images) / static_cast<double>(record.step.images),
          .compute = run.load() / record.load()};
}

}  // namespace brigade::apps
