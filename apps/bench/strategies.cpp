// SPDX-License-Identifier: MIT
// apps/bench/strategies.cpp - all strategies side by side: interleaved step by step in one process, after a warm-up, on
// the same data. With --sweep-bucket-mb the curve of step time over bucket size, and the best. Read before: dist/ddp.h.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>

#include "apps/common/run_main.h"
#include "autograd/engine.h"
#include "autograd/ops/loss.h"
#include "core/parallel.h"
#include "core/rng.h"
#include "data/loader.h"
#include "data/synthetic.h"
#include "dist/ddp.h"
#include "dist/launch.h"
#include "models/catalog.h"
#include "nn/optim/sgd.h"

namespace brigade::apps {
namespace {

struct BenchOptions {
  int ranks = 2;
  std::int64_t batch_size = 16;
  int steps = 10, warmup = 8;
  std::string model = "resnet18";
  std::string precision = "f32";
  std::string net;
  std::vector<double> sweep_mb;
  std::vector<std::string> orders;
};

struct Candidate {
  std::string name;
  dist::DdpOptions options;
  bool synchronise = true;
};

// What one candidate did in the measured steps, in milliseconds, on rank 0.
struct Series {
  std::vector<double> step, communication, hidden;
  std::size_t launches = 0;
};

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1) + 0.5)];
}

std::vector<Candidate> candidates(const BenchOptions& options) {
  std::vector<Candidate> out{{"no synchronisation", {}, false}};
  if (!options.sweep_mb.empty()) {
    for (const double mb : options.sweep_mb) {
      const double bytes = dist::cap_from_mib("--sweep-bucket-mb", mb);
      out.push_back(
          {fmt::format("bucketed, {} MiB", mb), {.plan = {.caps = {.bytes = bytes, .first_bytes = bytes}}}});
    }
    out.push_back({"bucketed, plan auto", {.plan = {.rule = "auto"}}});
    return out;
  }
  for (const dist::Strategy& strategy : dist::strategies()) {
    if (strategy.name != "bucketed")
      out.push_back({std::string(strategy.name), {.strategy = std::string(strategy.name)}});
  }
  for (const dist::PlanRule& rule : dist::plan_rules()) {
    if (rule.needs_json) continue;  // There is no file here.
    out.push_back({fmt::format("bucketed, plan {}", rule.name),
                   {.plan = {.rule = std::string(rule.name),
                             .caps = {.bytes = (rule.name.starts_with("torch") ? 25 : 4) * dist::kMiB}}}});
  }
  for (const std::string& order : options.orders)
    out.push_back({"bucketed, order " + order, {.plan = {.order = order}}});
  return out;
}

// One model with its Ddp, so that candidates do not share state.
class Runner {
 public:
  Runner(const BenchOptions& options, const Candidate& candidate, const data::Dataset& images,
         dist::ProcessGroup& group)
      : candidate_(candidate),
        model_(make_model(options)),
        ddp_(model_->named_parameters(), model_->named_buffers(), group, candidate.options),
        optimizer_(ddp_.parameters(), 0.01, {.momentum = 0.9}),
        loader_(images, {.batch_size = options.batch_size, .rank = group.rank(), .size = group.size()}) {}

  void step(Series* series) {
    const data::Batch batch = loader_.next();
    ddp_.group().barrier().wait();
    const auto begin = Clock::now();
    ddp_.parameters().zero_grad();
    if (candidate_.synchronise) {
      backward(cross_entropy((*model_)(batch.images), batch.labels));
    } else {
      const auto local = ddp_.no_sync();
      backward(cross_entropy((*model_)(batch.images), batch.labels));
    }
    optimizer_.step();
    ddp_.group().barrier().wait();  // A step ends when the slowest rank has.
    if (series == nullptr) return;
    series->step.push_back(dist::milliseconds(Clock::now() - begin));
    const bool recorded = candidate_.synchronise;
    series->communication.push_back(recorded ? dist::milliseconds(ddp_.ledger().last().communication()) : 0);
    series->hidden.push_back(recorded ? dist::milliseconds(ddp_.ledger().last().hidden()) : 0);
    series->launches = recorded ? ddp_.ledger().last().buckets.size() : 0;
  }

 private:
  static std::unique_ptr<nn::Module> make_model(const BenchOptions& options) {
    default_generator() = {.seed = 1};
    return models::make_model(options.model,
                              {.precision = options.precision == "bf16" ? DType::bf16 : DType::f32});
  }

  const Candidate& candidate_;
  std::unique_ptr<nn::Module> model_;
  dist::Ddp ddp_;
  optim::Sgd optimizer_;
  data::Loader loader_;
};

void print(const BenchOptions& options, const std::vector<Candidate>& all,
           const std::vector<Series>& series) {
  fmt::print("{:<28} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10}\n", "", "p50 ms", "p95 ms", "comm ms",
             "hidden", "exposed", "launches", "images/s");
  std::size_t best = 1;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Series& s = series[i];
    const double p50 = quantile(s.step, 0.5), comm = quantile(s.communication, 0.5),
                 hidden = quantile(s.hidden, 0.5);
    fmt::print("{:<28} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f} {:>9} {:>10.1f}\n", all[i].name, p50,
               quantile(s.step, 0.95), comm, hidden, comm - hidden, s.launches,
               1e3 * static_cast<double>(options.ranks * options.batch_size) / p50);
    if (i > 0 && p50 < quantile(series[best].step, 0.5)) best = i;
  }
  fmt::print("fastest that synchronises: {}\n", all[best].name);
}

void run(const BenchOptions& options) {
  const data::Split images = data::make_synthetic({.train = 4096, .test = 16});
  const std::vector<Candidate> all = candidates(options);
  std::vector<Series> series(all.size());
  dist::LaunchOptions launch;
  launch.ranks = options.ranks;
  if (!options.net.empty()) {
    launch.network.emplace();
    launch.network->links = {{0, dist::parse_link("--net", options.net)}};
  }
  dist::run_ranks(launch, [&](dist::ProcessGroup& group) {
    if (group.rank() == 0)
      fmt::print("{} {}, {} ranks x {} threads ({}), batch {} a rank, {} steps after {}, network {}\n",
                 options.model, options.precision, group.size(), num_threads(), group.backend(),
                 options.batch_size, options.steps, options.warmup,
                 options.net.empty() ? "as it is" : options.net);
    std::vector<std::unique_ptr<Runner>> runners;
    for (const Candidate& candidate : all)
      runners.push_back(std::make_unique<Runner>(options, candidate, images.train, group));
    for (int step = 0; step < options.warmup + options.steps; ++step)
      for (std::size_t i = 0; i < all.size(); ++i)
        runners[i]->step(group.rank() == 0 && step >= options.warmup ? &series[i] : nullptr);
  });
  if (dist::launch_environment().rank == 0) print(options, all, series);
}

}  // namespace
}  // namespace brigade::apps

int main(int argc, char** argv) {
  using namespace brigade;
  apps::BenchOptions o;
  CLI::App app("Compares when and in what pieces gradients travel.", "bench_strategies");
  app.add_option("--ranks", o.ranks, "Threads of this process; under mpirun the launcher decides")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--batch-size", o.batch_size, "Images per rank")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--steps", o.steps, "Measured steps of each")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--warmup", o.warmup, "Steps before; the planner needs a few")
      ->check(CLI::Range(0, 100000))
      ->capture_default_str();
  app.add_option("--model", o.model, "Network")->capture_default_str();
  app.add_option("--precision", o.precision, "f32 or bf16")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->capture_default_str();
  app.add_option("--net", o.net, "Model a network, like 1gbit,50us");
  app.add_option("--sweep-bucket-mb", o.sweep_mb,
                 "Compare these bucket caps (MiB, comma-separated) instead of strategies")
      ->delimiter(',');
  app.add_option("--orders", o.orders, "Compare these orders too, like memory,norm_first,random:1")
      ->delimiter(',');
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return apps::run_main([&] { apps::run(o); });
}
