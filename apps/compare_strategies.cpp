// SPDX-License-Identifier: MIT
// apps/compare_strategies.cpp - the bucketing experiment as a program: naive, flat, per_parameter and bucketed (fixed
// caps and planned) train the same model on the same data, taking turns step by step. They end with the same
// parameters, bit for bit, and differ in time only; why, report.html shows. Read before: apps/bench/runner.h,
// dist/strategies/.
#include <fmt/format.h>

#include <algorithm>

#include "apps/bench/report.h"
#include "apps/bench/runner.h"
#include "apps/common/evaluate.h"
#include "apps/common/run_main.h"
#include "apps/report/write_report.h"
#include "apps/telemetry/profile.h"
#include "apps/telemetry/recorder.h"
#include "core/parallel.h"
#include "dist/launch.h"
#include "nn/state_dict.h"

namespace brigade::apps {
namespace {

namespace fs = std::filesystem;

struct CompareOptions : ComparisonOptions {
  CompareOptions() { batch_size = 32; }
  std::string net = "1gbit,50us";
  double bucket_mb = 4;
  std::string out = "strategies_compared";
  bool overwrite = false;
};

// Naive comes first: the others are held against it.
std::vector<Candidate> candidates(const CompareOptions& options) {
  const dist::PlanOptions fixed{.rule = "size",
                                .caps = {.bytes = dist::cap_from_mib("--bucket-mb", options.bucket_mb)}};
  return {{"naive", {.strategy = "naive"}},
          {"flat", {.strategy = "flat"}},
          {"per_parameter", {.strategy = "per_parameter"}},
          {"bucketed_fixed", {.plan = fixed}},
          {"bucketed_planned", {.plan = {.rule = "auto"}}}};
}

// One candidate with its run directory; files on rank 0 only.
class Contender {
 public:
  Contender(const CompareOptions& options, const Candidate& candidate, dist::ProcessGroup& group,
            const Report& report, const fs::path& directory, Clock::time_point begin)
      : options_(options),
        files_(group.rank() == 0
                   ? std::make_unique<telemetry::RunFiles>(telemetry::RunFilesOptions{
                         .directory = directory, .overwrite = options.overwrite, .begin = begin})
                   : nullptr),
        runner_(candidate, options.subject(), group),
        recorder_(runner_.ddp(), files_.get(), begin) {
    runner_.ddp().ledger().keep_spans(options.warmup + trace_first() - 1, options.warmup + trace_last() - 1);
    if (files_) describe(report, nullptr);
  }

  void step(int number) {
    const StepTimes times = runner_.step();
    if (number <= options_.warmup) return;
    dist::Ddp& ddp = runner_.ddp();
    Tensor loss = Tensor::from(std::vector<double>{times.loss}, {1});
    ddp.group()
        .all_reduce(loss, dist::Reduce::mean, "loss")
        .wait();  // Behind the step: it is not in its time.
    if (files_) {
      const dist::StepRecord& record = ddp.ledger().last();
      step_ms.push_back(times.step_ms);
      comm_ms.push_back(dist::milliseconds(record.communication()));
      hidden_ms.push_back(dist::milliseconds(record.hidden()));
    }
    recorder_.add({.step = number - options_.warmup,
                   .steps = options_.steps,
                   .loss = loss.item(),
                   .lr = Runner::kLearningRate,
                   .step_ms = times.step_ms,
                   .images = options_.batch_size * ddp.group().size(),
                   .ledger_step = ddp.ledger().last().step,
                   .over = Clock::now()});
    recorder_.exchange();
  }

  // Everything is in the files but whether the strategies agree. Collective.
  void finish() {
    dist::Ddp& ddp = runner_.ddp();
    sha256 = parameters_sha256(runner_.model(), ddp.group());
    recorder_.flush();
    if (!files_) return;
    files_->plan(dist::plan_to_json(ddp.plan(), ddp.parameter_infos()));
    files_->finish(ddp.ledger().timeline());
    const dist::DdpOptions& how = runner_.candidate().options;
    telemetry::write_profile(files_->directory(),
                             telemetry::take_profile(ddp, {.model = options_.model,
                                                           .strategy = how.strategy,
                                                           .plan = how.plan.rule,
                                                           .threads = num_threads(),
                                                           .images = options_.batch_size,
                                                           .network = network(options_)}));
  }

  // config.json, at the beginning and again when it is known whether the parameters equal naive's.
  void describe(const Report& report, const bool* equal_to_naive) {
    const dist::Ddp& ddp = runner_.ddp();
    const dist::DdpOptions& how = runner_.candidate().options;
    nlohmann::ordered_json config{
        {"model", options_.model}, {"precision", options_.precision}, {"batch_size", options_.batch_size},
        {"sync", how.strategy},    {"plan", how.plan.rule},           {"net", options_.net}};
    config["run"] = {{"ranks", ddp.group().size()},
                     {"backend", ddp.group().backend()},
                     {"threads", num_threads()},
                     {"data", "generated images, the same for all strategies"},
                     {"parameters", nn::count_parameters(runner_.model())},
                     {"steps", options_.steps},
                     {"warm_up", 0},  // Of these: those before are not recorded.
                     {"global_batch", options_.batch_size * ddp.group().size()},
                     {"plan", ddp.plan().rule},
                     {"command", report.command()},
                     {"processor", report.machine()},
                     {"date", report.date()}};
    if (equal_to_naive) config["run"]["equal_to_naive"] = *equal_to_naive;
    files_->start({.ranks = ddp.group().size(),
                   .steps = options_.steps,
                   .trace_first = trace_first(),
                   .trace_last = trace_last(),
                   .buckets = ddp.plan().buckets.size()},
                  config.dump());
  }

  static std::optional<dist::NetworkModel> network(const CompareOptions& options) {
    if (options.net.empty()) return std::nullopt;
    return dist::parse_network("--net", options.net);
  }

  const std::string& name() const { return runner_.candidate().name; }
  std::size_t buckets() { return runner_.ddp().plan().buckets.size(); }

  std::vector<double> step_ms, comm_ms, hidden_ms;  // Of the measured steps, on rank 0.
  std::string sha256;

 private:
  // Some steps from the middle: the ends of a comparison are the least quiet.
  std::int64_t trace_first() const { return options_.steps / 2 + 1; }
  std::int64_t trace_last() const { return std::min<std::int64_t>(options_.steps, trace_first() + 2); }

  const CompareOptions& options_;
  std::unique_ptr<telemetry::RunFiles> files_;
  Runner runner_;
  telemetry::Recorder recorder_;
};

using Contenders = std::vector<std::unique_ptr<Contender>>;

void print(const CompareOptions& options, int ranks, const Contenders& contenders, Report& report) {
  report.line(fmt::format("{:<18} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8} {:>9} {:>8} {:>6}", "", "p50 ms",
                          "p95 ms", "p99 ms", "comm ms", "hidden", "exposed", "buckets", "images/s",
                          "x naive", "equal"));
  const double naive = quantile(contenders.front()->step_ms, 0.5);
  const Contender* best = contenders.front().get();
  for (const auto& c : contenders) {
    const double step = quantile(c->step_ms, 0.5), comm = quantile(c->comm_ms, 0.5),
                 hidden = quantile(c->hidden_ms, 0.5);
    const bool equal = c->sha256 == contenders.front()->sha256;
    report.line(fmt::format(
        "{:<18} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f} {:>8} {:>9.1f} {:>8.2f} {:>6}",
        c->name(), step, quantile(c->step_ms, 0.95), quantile(c->step_ms, 0.99), comm, hidden, comm - hidden,
        c->buckets(), 1e3 * static_cast<double>(ranks * options.batch_size) / step, naive / step,
        equal ? "yes" : "NO"));
    report.row({{"strategy", c->name()},
                {"step_ms", to_json(spread(c->step_ms))},
                {"communication_ms", comm},
                {"hidden_ms", hidden},
                {"buckets", c->buckets()},
                {"sha256", c->sha256},
                {"equal_to_naive", equal}});
    if (step < quantile(best->step_ms, 0.5)) best = c.get();
  }
  report.line(fmt::format("fastest: {}, {:.2f} times as fast as naive", best->name(),
                          naive / quantile(best->step_ms, 0.5)));
}

void compare(const CompareOptions& options, dist::ProcessGroup& group, Report& report) {
  const auto begin = Clock::now();
  const std::vector<Candidate> all = candidates(options);
  if (group.rank() == 0) {
    report.start();
    report.line(fmt::format(
        "{} {}, {} ranks x {} threads ({}), batch {} a rank, {} steps after {}, network {}", options.model,
        options.precision, group.size(), num_threads(), group.backend(), options.batch_size, options.steps,
        options.warmup, options.net.empty() ? "as it is" : options.net));
  }
  const double before = own_cpu_seconds();
  Contenders contenders;
  for (const Candidate& candidate : all)
    contenders.push_back(std::make_unique<Contender>(
        options, candidate, group, report, fs::path(options.out) / "strategies" / candidate.name, begin));
  for (int step = 1; step <= options.warmup + options.steps; ++step)
    for (const auto& contender : contenders) contender->step(step);
  for (const auto& contender : contenders) contender->finish();
  const double own = own_cpu_of_all(group, before);
  if (group.rank() != 0) return;
  bool all_equal = true;
  for (const auto& contender : contenders) {
    const bool equal = contender->sha256 == contenders.front()->sha256;
    all_equal = all_equal && equal;
    contender->describe(report, &equal);
  }
  print(options, group.size(), contenders, report);
  const fs::path page = fs::path(options.out) / "report.html";
  report::write_report(options.out, page);
  report.line("report   " + page.string());
  report.finish(own);
  BRIGADE_CHECK(all_equal, "the strategies end with different parameters: see the table");
}

void add_flags(CLI::App& app, CompareOptions& o) {
  add_comparison_flags(app, o, 4);
  app.add_option("--net", o.net, "Model a network, like 1gbit,50us; empty: the ranks' own")
      ->capture_default_str();
  app.add_option("--bucket-mb", o.bucket_mb, "Cap of bucketed_fixed, in MiB")
      ->check(positive())
      ->capture_default_str();
  app.add_option("--out", o.out, "Directory for the report and for a run directory of each strategy")
      ->type_name("DIR")
      ->capture_default_str();
  app.add_flag("--overwrite", o.overwrite, "Replace the files of an earlier comparison");
}

}  // namespace
}  // namespace brigade::apps

int main(int argc, char** argv) {
  using namespace brigade;
  apps::CompareOptions o;
  apps::Report report(argc, argv);
  CLI::App app(
      "Trains the same model on the same data with every way to synchronise gradients, interleaved step by "
      "step, and "
      "writes a report that shows them side by side. Takes a minute or two on two cores.",
      "compare_strategies");
  apps::add_flags(app, o);
  report.add_flags(app);
  return apps::run_bench(app, argc, argv, [&] {
    const dist::LaunchEnvironment launched = dist::launch_environment();
    report.speak(launched.rank == 0);
    dist::LaunchOptions launch;
    launch.ranks = launched.size > 1 ? launched.size : o.ranks;
    launch.network = apps::Contender::network(o);
    launch.on_stuck = apps::end_with_error;
    // Sums of more than two ranks depend on the order in which they are added up; ranks that are threads keep it.
    if (launched.size > 2) launch.algorithm = "naive";
    dist::run_ranks(launch, [&](dist::ProcessGroup& group) { apps::compare(o, group, report); });
  });
}
