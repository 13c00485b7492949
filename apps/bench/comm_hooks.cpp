// SPDX-License-Identifier: MIT
// apps/bench/comm_hooks.cpp - what each comm hook sends, loses and costs: on the gradients of a model's first step
// (or on normal numbers), as one bucket. Read before: dist/comm_hook.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "apps/bench/report.h"
#include "apps/bench/subject.h"
#include "autograd/engine.h"
#include "autograd/ops/loss.h"
#include "core/parallel.h"
#include "core/rng.h"
#include "data/loader.h"
#include "data/synthetic.h"
#include "dist/comm_hook.h"
#include "dist/launch.h"
#include "models/catalog.h"

namespace brigade::apps {
namespace {

struct HookBenchOptions {
  int ranks = 2, steps = 5;
  std::int64_t elements = 0;
  std::string model = "resnet18", net;
  std::vector<std::string> hooks;
};

// Parameters whose gradient memory holds this rank's gradients: those of a model on its own images, or normal numbers.
optim::FlatParameters make_gradients(const HookBenchOptions& options, dist::ProcessGroup& group) {
  if (options.elements > 0) {
    // As square as can be, for hooks that look for matrices.
    const auto rows = static_cast<std::int64_t>(std::sqrt(static_cast<double>(options.elements)));
    const Tensor zeros = Tensor::zeros({rows, options.elements / rows});
    optim::FlatParameters parameters({{"gradients", Variable::parameter(zeros)}});
    float* const x = parameters.gradients(parameters.all()).data<float>();
    for (std::int64_t i = 0; i < zeros.numel(); ++i)
      x[i] = normal_at(1, static_cast<std::uint64_t>(group.rank()), static_cast<std::uint64_t>(i));
    return parameters;
  }
  default_generator() = {.seed = 1};
  const auto model = models::make_model(options.model);
  optim::FlatParameters parameters(model->named_parameters());
  const data::Split images = data::make_synthetic({.train = 1024, .test = 16});
  data::Loader loader(images.train, {.batch_size = 16, .rank = group.rank(), .size = group.size()});
  const data::Batch batch = loader.next();
  backward(cross_entropy((*model)(batch.images), batch.labels));
  return parameters;
}

// |gradients - mean| / |mean|; `mean` is exact, in f64.
double relative_error(const Tensor& gradients, const std::vector<double>& mean) {
  double difference = 0, all = 0;
  for (std::size_t i = 0; i < mean.size(); ++i) {
    difference += std::pow(gradients.data<float>()[i] - mean[i], 2);
    all += mean[i] * mean[i];
  }
  return std::sqrt(difference / all);
}

// What one hook did, as seen by one rank.
struct Measured {
  std::int64_t wire_bytes = 0;
  double error = 0;  // Of the first call: a hook that keeps errors back has none yet.
  Spread ms;         // Of the calls after that one, which allocates.
};

Measured measure(const HookBenchOptions& options, const std::string& name, const std::vector<double>& mean,
                 const optim::FlatParameters& parameters, const std::vector<float>& own,
                 dist::ProcessGroup& group) {
  const auto hook = dist::make_comm_hook(name, parameters);
  Tensor gradients = parameters.gradients(parameters.all());
  Measured out;
  std::vector<double> times;
  for (int step = 0; step <= options.steps; ++step) {
    std::copy(own.begin(), own.end(), gradients.data<float>());
    const auto call = [&](dist::Transport& transport) {
      dist::HookBucket bucket{parameters, parameters.all(), 0, gradients.numel(), gradients, step};
      out.wire_bytes = hook->mean(bucket, transport).wire_bytes;
    };
    group.barrier().wait();
    const auto begin = Clock::now();
    group.run({.operation = "hook", .tensor = gradients, .run = call}).wait();
    if (step == 0)
      out.error = relative_error(gradients, mean);
    else
      times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  out.ms = spread(times);
  return out;
}

void run(const HookBenchOptions& options, Report& report) {
  // A name that is no hook is an error before anything starts.
  for (const std::string& name : options.hooks) static_cast<void>(dist::comm_hook(name));
  dist::LaunchOptions launch{.ranks = options.ranks};
  if (!options.net.empty()) launch.network = dist::parse_network("--net", options.net);
  dist::run_ranks(launch, [&](dist::ProcessGroup& group) {
    const optim::FlatParameters parameters = make_gradients(options, group);
    const Tensor gradients = parameters.gradients(parameters.all());
    const std::vector<float> own = gradients.to_vector<float>();
    Tensor all = Tensor::empty({group.size() * gradients.numel()});
    group.all_gather(gradients, all).wait();
    std::vector<double> mean(own.size());
    for (std::size_t i = 0; i < own.size() * static_cast<std::size_t>(group.size()); ++i)
      mean[i % own.size()] += static_cast<double>(all.data<float>()[i]) / group.size();

    if (group.rank() == 0) {
      report.start();
      report.line(fmt::format("{}, {:.1f} MiB, {} ranks of {} cores ({}), {} calls of one bucket, network {}",
                              options.elements > 0 ? "normal numbers" : options.model,
                              static_cast<double>(gradients.bytes()) / 1048576.0, group.size(),
                              available_cores(), group.backend(), options.steps,
                              options.net.empty() ? "as it is" : options.net));
      report.line(
          fmt::format("{:<14} {:>12} {:>9} {:>12} {:>9}", "", "bytes", "of none", "L2 error", "p50 ms"));
    }
    group.barrier().wait();
    const double before = own_cpu_seconds();
    for (const std::string& name : options.hooks) {
      const Measured m = measure(options, name, mean, parameters, own, group);
      if (group.rank() != 0) continue;
      const double share = static_cast<double>(m.wire_bytes) / static_cast<double>(gradients.bytes());
      report.line(fmt::format("{:<14} {:>12} {:>9.4f} {:>12.3g} {:>9.1f}", name, m.wire_bytes, share, m.error,
                              m.ms.p50));
      report.row({{"hook", name},
                  {"wire_bytes", m.wire_bytes},
                  {"share_of_bytes", share},
                  {"relative_error", m.error},
                  {"ms", to_json(m.ms)}});
    }
    const double seconds = own_cpu_of_all(group, before);
    if (group.rank() == 0) report.finish(seconds);
  });
}

}  // namespace
}  // namespace brigade::apps

int main(int argc, char** argv) {
  using namespace brigade;
  apps::HookBenchOptions o;
  apps::Report report(argc, argv);
  for (const dist::HookEntry& entry : dist::comm_hooks()) o.hooks.emplace_back(entry.name);
  CLI::App app("Compares what comm hooks send, lose and cost.", "bench_comm_hooks");
  app.add_option("--ranks", o.ranks, "Threads of this process; under mpirun the launcher decides")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--steps", o.steps, "Timed calls of each")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--model", o.model, "Whose gradients")->capture_default_str();
  app.add_option("--elements", o.elements, "So many normal numbers instead of a model's gradients")
      ->check(CLI::Range(1, 1 << 30));
  app.add_option("--net", o.net, "Model a network, like 1gbit,50us");
  app.add_option("--hooks", o.hooks, "Which, like none,topk:0.001")->delimiter(',')->capture_default_str();
  report.add_flags(app);
  return apps::run_bench(app, argc, argv, [&] {
    report.speak(dist::launch_environment().rank == 0);
    apps::run(o, report);
  });
}
