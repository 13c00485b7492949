// SPDX-License-Identifier: MIT
// apps/whatif.cpp - how a recorded run would scale: other numbers of ranks, networks, algorithms, strategies, plans and
// batches, in seconds instead of on a cluster; and by how much such predictions are wrong, on runs that were measured.
// Read before: dist/what_if.h, apps/whatif/questions.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/common/flag_checks.h"
#include "apps/common/run_main.h"
#include "apps/telemetry/run_files.h"
#include "apps/whatif/efficiency_plot.h"
#include "apps/whatif/questions.h"
#include "core/choices.h"
#include "dist/grad_sync.h"

namespace brigade::apps {
namespace {

using Json = nlohmann::ordered_json;

struct Flags {
  std::string record;
  QuestionFlags questions;
  std::vector<std::string> check;
  std::string json, svg;
};

constexpr const char* kAssumptions[] = {
    "every rank computes as the recorded one; forward and backward grow with the batch, the optimizer does "
    "not",
    "a collective waits for the slowest rank: normal times, independent, with the recorded spread between "
    "steps",
    "all-reduces cost latency and bandwidth as their algorithm counts them, and the overhead that was "
    "measured",
    "links are alike and carry one bucket at a time; adding up costs nothing",
};

double ms(double seconds) { return 1e3 * seconds; }

class Output {
 public:
  explicit Output(bool speaks) : speaks_(speaks) {}
  void line(const std::string& text) const {
    if (speaks_) fmt::print("{}\n", text);
  }

 private:
  bool speaks_;
};

Json describe_record(const Flags& flags, const telemetry::Profile& record, const Output& out) {
  const dist::StepProfile& s = record.step;
  out.line(fmt::format("record     {}: {}, {} rank{} x {} thread{}, {} {}, {} images a rank, {} steps",
                       flags.record, record.model, s.ranks, s.ranks == 1 ? "" : "s", record.threads,
                       record.threads == 1 ? "" : "s", record.strategy, record.plan, s.images, s.steps));
  out.line(
      fmt::format("           step {:.2f} ms: {:.2f} before backward, {:.2f} backward, {:.2f} after, {:.2f} "
                  "exposed, {:.2f} other;"
                  " spread {:.1f} %, {:.0f} us overhead a collective",
                  ms(s.step_s), ms(s.before_s), ms(s.backward_s), ms(s.after_s), ms(s.exposed_s),
                  ms(std::max(0.0, s.step_s - s.before_s - s.backward_s - s.after_s - s.exposed_s)),
                  100 * s.spread, 1e6 * dist::overhead_s(s)));
  for (const char* text : kAssumptions)
    out.line(fmt::format("{:<10} {}", text == kAssumptions[0] ? "assumed" : "", text));
  if (record.load() > 1 && flags.questions.cores == 0)
    out.line(fmt::format(
        "note       the recorded ranks had {:.1f} threads a core: what is predicted computes as slowly;"
        " see --cores",
        record.load()));
  return {{"directory", flags.record},
          {"model", record.model},
          {"ranks", s.ranks},
          {"images", s.images},
          {"step_ms", ms(s.step_s)},
          {"spread", s.spread},
          {"overhead_us", 1e6 * dist::overhead_s(s)}};
}

// What is wrong with a flag is often known only when the record is.
template <class Ask>
auto usage_error_if_it_throws(const Ask& ask_now) {
  try {
    return ask_now();
  } catch (const Error& error) {
    throw EarlyExit{2, str("whatif: ", error.what(), "; see --help\n")};
  }
}

// The table and its rows, a curve a question.
Json predict(const Flags& flags, const std::vector<Question>& questions, const telemetry::Profile& record,
             const Output& out, std::vector<Curve>& curves) {
  Json rows = Json::array();
  for (const Question& question : questions) {
    out.line("");
    out.line(question.text);
    out.line(fmt::format("{:>7} {:>9} {:>9} {:>9} {:>10} {:>9} {:>12} {:>10}", "ranks", "step ms", "comm ms",
                         "exposed", "straggler", "buckets", "images/s", "efficiency"));
    curves.push_back({question.text, {}});
    for (const int ranks : flags.questions.ranks) {
      const dist::Forecast f =
          dist::forecast(record.step, with_ranks(question, ranks, flags.questions, record));
      const double images_per_s =
          static_cast<double>(ranks) * static_cast<double>(question.images) / f.step_s;
      out.line(fmt::format("{:>7} {:>9.2f} {:>9.2f} {:>9.2f} {:>10.2f} {:>9} {:>12.1f} {:>8.1f} %", ranks,
                           ms(f.step_s), ms(f.communication_s), ms(f.exposed_s), ms(f.straggler_s),
                           f.plan.buckets.size(), images_per_s, 100 * f.efficiency()));
      curves.back().points.emplace_back(ranks, f.efficiency());
      rows.push_back({{"question", question.text},
                      {"ranks", ranks},
                      {"strategy", question.scenario.strategy},
                      {"plan", f.plan.rule},
                      {"images", question.images},
                      {"step_ms", ms(f.step_s)},
                      {"compute_ms", ms(f.compute_s)},
                      {"communication_ms", ms(f.communication_s)},
                      {"exposed_ms", ms(f.exposed_s)},
                      {"straggler_ms", ms(f.straggler_s)},
                      {"buckets", f.plan.buckets.size()},
                      {"images_per_s", images_per_s},
                      {"efficiency", f.efficiency()}});
    }
  }
  return rows;
}

// Runs in order of their step times.
std::string order(const Json& rows, const char* key) {
  std::vector<const Json*> sorted;
  for (const Json& row : rows) sorted.push_back(&row);
  std::stable_sort(sorted.begin(), sorted.end(), [&](const Json* a, const Json* b) {
    return (*a)[key].get<double>() < (*b)[key].get<double>();
  });
  std::string text;
  for (const Json* row : sorted) text += (text.empty() ? "" : " < ") + (*row)["run"].get<std::string>();
  return text;
}

// Predicts what was measured. The last column takes the run's own compute times: what is left is the error of the
// schedule and of the network.
Json check(const Flags& flags, const telemetry::Profile& record, const Output& out) {
  out.line("");
  out.line("predictions of runs that were measured, in ms");
  out.line(fmt::format("{:<28} {:>5} {:>14} {:>9} {:>9} {:>8} {:>9} {:>9} {:>11}", "run", "ranks", "strategy",
                       "step", "predicted", "error", "exposed", "predicted", "own compute"));
  Json rows = Json::array();
  double worst = 0;
  for (const std::string& directory : flags.check) {
    const telemetry::Profile run = telemetry::read_profile(directory);
    const dist::Forecast f = dist::forecast(record.step, scenario_of(run, record));
    const dist::Forecast own = dist::forecast(run.step, scenario_of(run, run));
    const double error = f.step_s / run.step.step_s - 1, own_error = own.step_s / run.step.step_s - 1;
    worst = std::max(worst, std::abs(error));
    out.line(fmt::format("{:<28} {:>5} {:>14} {:>9.2f} {:>9.2f} {:>6.1f} % {:>9.2f} {:>9.2f} {:>9.1f} %",
                         directory, run.step.ranks, run.strategy, ms(run.step.step_s), ms(f.step_s),
                         100 * error, ms(run.step.exposed_s), ms(f.exposed_s), 100 * own_error));
    rows.push_back({{"run", directory},
                    {"ranks", run.step.ranks},
                    {"strategy", run.strategy},
                    {"step_ms", ms(run.step.step_s)},
                    {"predicted_ms", ms(f.step_s)},
                    {"error", error},
                    {"exposed_ms", ms(run.step.exposed_s)},
                    {"predicted_exposed_ms", ms(f.exposed_s)},
                    {"error_with_own_compute", own_error}});
  }
  out.line(fmt::format("largest error {:.1f} %", 100 * worst));
  const std::string measured = order(rows, "step_ms"), predicted = order(rows, "predicted_ms");
  if (rows.size() > 1) {
    out.line("fastest first, measured:  " + measured);
    out.line("fastest first, predicted: " + (measured == predicted ? "the same" : predicted));
  }
  return {{"rows", rows}, {"largest_error", worst}, {"same_order", measured == predicted}};
}

void run(const Flags& flags) {
  const Output out(flags.json != "-");
  const telemetry::Profile record = telemetry::read_profile(flags.record);
  const std::vector<Question> questions =
      usage_error_if_it_throws([&] { return ask(flags.questions, record); });
  Json json;
  json["record"] = describe_record(flags, record, out);
  for (const char* text : kAssumptions) json["assumptions"].push_back(text);
  std::vector<Curve> curves;
  json["rows"] = predict(flags, questions, record, out, curves);
  if (!flags.check.empty()) json["check"] = check(flags, record, out);
  if (!flags.svg.empty())
    telemetry::write_whole(flags.svg, efficiency_svg(curves, "What if: " + record.model + " on more ranks"),
                           "--svg");
  const std::string text =
      json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";  // Paths: any bytes.
  if (flags.json == "-")
    fmt::print("{}", text);
  else if (!flags.json.empty())
    telemetry::write_whole(flags.json, text, "--json");
}

void add_flags(CLI::App& app, Flags& f) {
  app.add_option("RUN_DIR", f.record, "Directory of a run that ended (train_resnet18 --out)")->required();
  QuestionFlags& q = f.questions;
  app.add_option("--ranks", q.ranks, "Numbers of ranks; default: 1,2,4 … 64")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 65536))
      ->type_name("N[,N...]");
  app.add_option("--net", q.nets,
                 "A link between any two ranks, like 100gbit,5us; several times: several networks; "
                 "default: that of the recorded run")
      ->allow_extra_args(false)
      ->take_all()
      ->type_name("LINK");
  app.add_option(
         "--in-host", q.in_host,
         "Ranks of a host and the link between them, like 8:400gbit,1us; --net is between hosts then, and "
         "all-reduces have two levels")
      ->type_name("RANKS:LINK");
  app.add_option("--algorithm", q.algorithms,
                 "All-reduce: of all ranks, or between hosts; default: as recorded")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(one_of(dist::all_reduce_algorithms()))
      ->type_name("NAME[,NAME...]");
  app.add_option("--strategy", q.strategies,
                 table_help("When gradients travel; default: as recorded:", dist::strategies()))
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(one_of(names(dist::strategies())))
      ->type_name("NAME[,NAME...]");
  app.add_option("--plan", q.plans,
                 "Where bucketed cuts: auto, recorded (the buckets of the run), or size, torch or "
                 "torch_rebuilt with a "
                 "cap in MiB as in size:4; default: as recorded, auto where that had no buckets")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("PLAN[,PLAN...]");
  app.add_option("--batch-size", q.batch_sizes, "Images a rank and step; default: as recorded")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000}))
      ->type_name("N[,N...]");
  app.add_option("--cores", q.cores,
                 "All ranks share so many cores; default: each computes as fast as the recorded")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--spread", q.spread_percent,
                 "How much ranks' times differ (standard deviation, percent), instead of "
                 "the spread between recorded steps")
      ->check(not_negative())
      ->type_name("PERCENT");
  app.add_option("--overhead", q.overhead_us,
                 "Of each collective in microseconds, instead of the measured one")
      ->check(not_negative())
      ->type_name("US");
  app.add_option("--check", f.check,
                 "Runs that were measured: predicts them from the record and tells the errors")
      ->type_name("RUN_DIR...");
  app.add_option("--json", f.json,
                 "Write all figures as JSON to FILE; - writes them to standard output, and nothing else")
      ->type_name("FILE|-");
  app.add_option("--svg", f.svg, "Write efficiency over ranks as a picture")->type_name("FILE");
}

}  // namespace
}  // namespace brigade::apps

int main(int argc, char** argv) {
  using namespace brigade;
  apps::Flags flags;
  CLI::App app(
      "Predicts how a recorded run would scale, with the planner's own model.\n"
      "  whatif runs/a --ranks 8,64,512 --net 100gbit,5us --strategy naive,bucketed --svg efficiency.svg\n"
      "  whatif runs/one_rank --check runs/two_ranks runs/four_ranks",
      "whatif");
  apps::add_flags(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  std::vector<int>& ranks = flags.questions.ranks;
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return apps::run_main([&] { apps::run(flags); });
}
