// SPDX-License-Identifier: MIT
// apps/bench/strategies.cpp - all strategies side by side: interleaved step by step in one process tree, after a
// warm-up, on the same data, and how far each is from what the network allows. With --sweep-bucket-mb the curve of step
// time over bucket size and what it recommends. Read before: dist/ddp.h. Read next: dist/planner.h.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "apps/bench/report.h"
#include "apps/bench/runner.h"
#include "core/parallel.h"
#include "dist/ddp.h"
#include "dist/launch.h"

namespace brigade::apps {
namespace {

struct BenchOptions : ComparisonOptions {
  std::string net, net_schedule;
  std::vector<double> sweep_mb;
  std::vector<std::string> orders, hooks;
  bool strategies = true;
};

// What one candidate did in the measured steps, in milliseconds, on rank 0.
struct Series {
  std::vector<double> step, communication, hidden;
  std::vector<double> backward;               // Its length without synchronisation.
  std::optional<dist::StepRecord> last = {};  // Of the candidate that tells what the network allows.
  std::vector<std::int64_t> bytes;            // By position.
  std::size_t launches = 0;
};

constexpr const char* kPlanned = "bucketed, plan auto";

std::vector<Candidate> candidates(const BenchOptions& options) {
  std::vector<Candidate> out{{"no synchronisation", {}, false}};
  for (const double mb : options.sweep_mb) {
    const double bytes = dist::cap_from_mib("--sweep-bucket-mb", mb);
    out.push_back(
        {fmt::format("bucketed, {} MiB", mb), {.plan = {.caps = {.bytes = bytes, .first_bytes = bytes}}}});
  }
  if (!options.sweep_mb.empty() || !options.strategies) {
    out.push_back({kPlanned, {.plan = {.rule = "auto"}}});
  } else {
    for (const dist::Strategy& strategy : dist::strategies())
      if (!strategy.plans_by_rule)
        out.push_back({std::string(strategy.name), {.strategy = std::string(strategy.name)}});
    for (const dist::PlanRule& rule : dist::plan_rules()) {
      const double cap = rule.name.starts_with("torch") ? 25 : 4;  // Their defaults.
      if (!rule.needs_json)
        out.push_back({fmt::format("bucketed, plan {}", rule.name),
                       {.plan = {.rule = std::string(rule.name), .caps = {.bytes = cap * dist::kMiB}}}});
    }
  }
  for (const std::string& order : options.orders)
    out.push_back({"plan auto, order " + order, {.plan = {.rule = "auto", .order = order}}});
  for (const std::string& hook : options.hooks)
    out.push_back({"plan auto, hook " + hook, {.plan = {.rule = "auto"}, .hook = hook}});
  return out;
}

void measured_step(Runner& runner, Series& series) {
  const StepTimes times = runner.step();
  series.step.push_back(times.step_ms);
  series.backward.push_back(times.backward_ms);
  if (!runner.candidate().synchronise) return;
  const dist::Ddp& ddp = runner.ddp();
  const dist::StepRecord& record = ddp.ledger().last();
  series.communication.push_back(dist::milliseconds(record.communication()));
  series.hidden.push_back(dist::milliseconds(record.hidden()));
  series.launches = record.buckets.size();
  series.last = record;
  series.bytes.clear();
  for (const int index : ddp.plan().order)
    series.bytes.push_back(ddp.parameter_infos()[static_cast<std::size_t>(index)].bytes);
}

double p50(const std::vector<double>& values) { return values.empty() ? 0 : quantile(values, 0.5); }

// The step time that no plan can beat on this link: compute, and a wire that carries every byte after its gradient is
// ready. Ready times are those of the planned candidate in its last step.
std::optional<double> ideal_ms(const Series& alone, const Series& measured) {
  if (!measured.last || measured.last->communication().count() == 0) return std::nullopt;
  std::int64_t bytes = 0;
  for (const dist::BucketRecord& bucket : measured.last->buckets) bytes += bucket.bytes;
  dist::ReadyTimes ready;
  for (const auto time : measured.last->ready)
    ready.push_back(1e-3 * dist::milliseconds(time - measured.last->backward.begin));
  const double per_byte = 1e-3 * p50(measured.communication) / static_cast<double>(bytes);
  const double backward = p50(alone.backward);
  return p50(alone.step) - backward +
         std::max(backward, 1e3 * dist::earliest_finish(measured.bytes, ready, per_byte));
}

void print(const BenchOptions& options, const std::vector<Candidate>& all, const std::vector<Series>& series,
           Report& report) {
  const Series& alone = series[0];
  const auto planned = static_cast<std::size_t>(
      std::find_if(all.begin(), all.end(), [](const Candidate& c) { return c.name == kPlanned; }) -
      all.begin());
  const auto ideal = ideal_ms(alone, series[planned]);
  report.line(fmt::format("{:<28} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10} {:>9}", "", "p50 ms", "p95 ms",
                          "comm ms", "hidden", "exposed", "launches", "images/s", "x ideal"));
  std::size_t best = 1, best_fixed = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Series& s = series[i];
    const double step = p50(s.step), comm = p50(s.communication), hidden = p50(s.hidden);
    report.line(fmt::format("{:<28} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f} {:>9} {:>10.1f} {:>9}",
                            all[i].name, step, quantile(s.step, 0.95), comm, hidden, comm - hidden,
                            s.launches, 1e3 * static_cast<double>(options.ranks * options.batch_size) / step,
                            ideal && i > 0 ? fmt::format("{:.3f}", step / *ideal) : ""));
    report.row({{"candidate", all[i].name},
                {"step_ms", to_json(spread(s.step))},
                {"communication_ms", comm},
                {"hidden_ms", hidden},
                {"launches", s.launches}});
    if (i > 0 && step < p50(series[best].step)) best = i;
    if (i > 0 && i != planned && (best_fixed == 0 || step < p50(series[best_fixed].step))) best_fixed = i;
  }
  if (ideal) report.line(fmt::format("no plan can take less than {:.1f} ms on this link", *ideal));
  if (options.ranks == 1)
    for (std::size_t i = 1; i < all.size(); ++i)
      report.line(fmt::format("{}: {:+.2f} % against no synchronisation", all[i].name,
                              100 * (p50(series[i].step) / p50(alone.step) - 1)));
  else if (options.sweep_mb.empty())
    report.line(fmt::format("fastest that synchronises: {}", all[best].name));
  else
    report.line(fmt::format(
        "of the fixed caps the best is {}; plan auto takes {:.3f} of its time; recommended: {}",
        all[best_fixed].name, p50(series[planned].step) / p50(series[best_fixed].step), all[best].name));
}

void run(BenchOptions options, Report& report) {
  const std::vector<Candidate> all = candidates(options);
  std::vector<Series> series(all.size());
  dist::LaunchOptions launch;
  launch.ranks = options.ranks;
  if (!options.net.empty()) {
    launch.network = dist::parse_network("--net", options.net);
    if (!options.net_schedule.empty())
      launch.network->links =
          dist::parse_schedule("--net-schedule", options.net_schedule, launch.network->links.front().link);
  }
  dist::run_ranks(launch, [&](dist::ProcessGroup& group) {
    if (group.rank() == 0) {
      options.ranks = group.size();  // Under mpirun the launcher decides.
      report.start();
      report.line(fmt::format(
          "{} {}, {} ranks x {} threads ({}), batch {} a rank, {} steps after {}, network {}", options.model,
          options.precision, group.size(), num_threads(), group.backend(), options.batch_size, options.steps,
          options.warmup, options.net.empty() ? "as it is" : options.net));
    }
    group.barrier().wait();
    const double before = own_cpu_seconds();
    std::vector<std::unique_ptr<Runner>> runners;
    for (const Candidate& candidate : all)
      runners.push_back(std::make_unique<Runner>(candidate, options.subject(), group));
    for (int step = 0; step < options.warmup + options.steps; ++step)
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (group.rank() == 0 && step >= options.warmup)
          measured_step(*runners[i], series[i]);
        else
          runners[i]->step();
      }
    const double own = own_cpu_of_all(group, before);
    if (group.rank() != 0) return;
    print(options, all, series, report);
    report.finish(own);
  });
}

}  // namespace
}  // namespace brigade::apps

int main(int argc, char** argv) {
  using namespace brigade;
  apps::BenchOptions o;
  apps::Report report(argc, argv);
  CLI::App app(
      "Compares when and in what pieces gradients travel. \"x ideal\" is the step time over that of compute "
      "and wire "
      "perfectly overlapped.",
      "bench_strategies");
  apps::add_comparison_flags(app, o, 1);
  const auto net = app.add_option("--net", o.net, "Model a network, like 1gbit,50us");
  app.add_option("--net-schedule", o.net_schedule, "Change the bandwidth at steps, like 0:10gbit,20:1gbit")
      ->needs(net);
  app.add_option("--sweep-bucket-mb", o.sweep_mb,
                 "Compare these bucket caps (MiB, comma-separated) and the planner instead of strategies")
      ->delimiter(',');
  app.add_option("--orders", o.orders, "Compare these orders too, like memory,norm_first,random:1")
      ->delimiter(',');
  app.add_option("--hooks", o.hooks, "Compare these comm hooks too, like bf16,powersgd:2")->delimiter(',');
  app.add_flag("!--no-strategies", o.strategies,
               "Leave out the strategies: only what --orders or --hooks name, and auto");
  report.add_flags(app);
  return apps::run_bench(app, argc, argv, [&] {
    report.speak(dist::launch_environment().rank == 0);
    apps::run(o, report);
  });
}
