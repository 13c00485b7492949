// SPDX-License-Identifier: MIT
// apps/bench/train.cpp - how fast a model trains here, where the time of a step goes, and what separates it from its
// convolutions alone. With --inference how fast it answers. Read before: apps/bench/trainer.h.
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <optional>

#include "apps/bench/conv_bound.h"
#include "apps/bench/report.h"
#include "apps/bench/trainer.h"
#include "apps/common/machine_text.h"
#include "core/parallel.h"
#include "core/runtime.h"
#include "dist/device_choice.h"
#include "dist/launch.h"
#include "models/catalog.h"

namespace brigade::apps {
namespace {

using nlohmann::ordered_json;

struct TrainBenchOptions {
  TrainerOptions trainer;
  std::string precision = "f32", device = "cpu";
  std::vector<int> batch_sizes, threads;
  int ranks = 1, steps = 10, warmup = 3;
  bool inference = false, bound = true;
};

struct Setting {
  int threads = 1, batch_size = 32;
};

// Each number of threads with each batch size.
std::vector<Setting> settings(const TrainBenchOptions& o) {
  std::vector<Setting> out;
  for (const int threads : o.threads.empty() ? std::vector{num_threads()} : o.threads)
    for (const int batch : o.batch_sizes) out.push_back({threads, batch});
  return out;
}

// Of the whole run, in seconds since the system started this process.
struct FirstStep {
  double begin_s, end_s;
};

constexpr double kMiB = 1024.0 * 1024.0;

struct Memory {
  double resident_mib, tensors_mib;
};

// Frees what earlier settings have left, so that a peak is that of one setting.
void forget_memory() {
  runtime(Device{}).trim();
  runtime(Device{}).reset_peak();
  malloc_trim(0);
  reset_peak_resident();
}
Memory peak_memory() {
  return {static_cast<double>(peak_resident_bytes()) / kMiB,
          static_cast<double>(runtime(Device{}).memory_stats().peak_bytes) / kMiB};
}

double sum_if(const StepTimes& step, bool (*wanted)(std::string_view)) {
  double sum = 0;
  for (const auto& [name, ms] : step.operations)
    if (wanted(name)) sum += ms;
  return sum;
}

// The phases of a step as (name, ms) that add up to its total. Indented ones are parts of it too: of forward and
// backward remains what lies between operations.
std::vector<std::pair<std::string, double>> phases(const StepTimes& s) {
  const auto of = [&](const char* name) {
    const auto at = s.operations.find(name);
    return at == s.operations.end() ? 0.0 : at->second;
  };
  const double norm = sum_if(s, [](std::string_view name) { return name.starts_with("batch_norm"); });
  const double all = sum_if(s, [](std::string_view) { return true; });
  const double convolutions = sum_if(s, is_convolution);
  return {{"data", s.data},
          {"convolution, forward", of("conv2d")},
          {"convolution, gradient of input", of("conv2d_grad_input")},
          {"convolution, gradient of weights", of("conv2d_grad_weight")},
          {"batch norm, forward and backward", norm},
          {"other operations", all - convolutions - norm},
          {"between operations", s.forward + s.backward - all - s.waited},
          {"optimizer", s.optimizer},
          {"waiting for gradients of others", s.waited},
          {"waiting for the slowest rank", s.total - s.data - s.forward - s.backward - s.optimizer}};
}

// Item by item, the largest first: what a step does beyond its convolutions alone.
std::vector<std::pair<std::string, double>> separating(const StepTimes& s, double bound) {
  std::vector<std::pair<std::string, double>> out{
      {"convolutions in the step, less alone", sum_if(s, is_convolution) - bound}};
  for (const auto& [name, ms] : s.operations)
    if (!is_convolution(name)) out.emplace_back(name, ms);
  for (const auto& [name, ms] : phases(s))
    if (name == "data" || name == "optimizer" || name.starts_with("between") || name.starts_with("waiting"))
      out.emplace_back(name, ms);
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return out;
}

ordered_json to_json(const std::vector<std::pair<std::string, double>>& items) {
  ordered_json out = ordered_json::object();
  for (const auto& [name, ms] : items) out[name] = ms;
  return out;
}

// What separates `step` from its convolutions alone; `images` of all ranks.
void report_bounds(const TrainerOptions& o, const StepTimes& step, int images, Report& report,
                   ordered_json& row) {
  const ConvBound bound = conv_bound({.model = o.model,
                                      .stem = o.stem,
                                      .precision = o.precision,
                                      .batch_size = o.batch_size,
                                      .image_size = o.image_size});
  const auto tell = [&](const char* whose, const std::string& key, double ms) {
    const double rate = 1e3 * images / ms, share = ms / step.total;
    report.line(fmt::format(
        "convolutions alone {:<32} {:>8.2f} ms, {:.1f} images/s: the step reaches {:.0f} % of that "
        "bound",
        whose, ms, rate, 100 * share));
    row[key + "_bound_ms"] = ms;
    row[key + "_bound_images_per_s"] = rate;
    row["share_of_" + key + "_bound"] = share;
  };
  tell("by the library's algorithms:", "library", bound.library_ms);
  tell("by our own fastest:", "own", bound.own_ms);
  report.line("beyond our own fastest:");
  const auto items = separating(step, bound.own_ms);
  for (const auto& [name, part] : items)
    if (part >= 0.001 * step.total || part < 0)
      report.line(fmt::format("  {:<40} {:>8.2f} ms {:>5.1f} %", name, part, 100 * part / step.total));
  row["separating_ms"] = to_json(items);
}

// One setting on one rank.
void train(const TrainBenchOptions& options, const Setting& setting, dist::ProcessGroup& group,
           Report& report, std::optional<FirstStep>& first_step) {
  TrainerOptions o = options.trainer;
  o.batch_size = setting.batch_size;
  set_num_threads(setting.threads);
  if (group.rank() == 0) forget_memory();
  const int ranks = group.size();
  std::vector<StepTimes> steps;
  std::vector<double> totals, costs;
  Memory memory{};
  dist::GradientMemory gradients;
  {
    Trainer trainer(o, group);
    gradients = trainer.gradient_memory();
    for (int i = 0; i < options.warmup + options.steps; ++i) {
      const double begin_s = first_step ? 0 : seconds_since_start();
      const StepTimes with = trainer.step();
      if (!first_step) first_step = {begin_s, seconds_since_start()};
      // Alternating, so that both see the same machine.
      const StepTimes without = ranks > 1 ? trainer.step(Trainer::Synchronise::no) : StepTimes{};
      if (i < options.warmup) continue;
      steps.push_back(with);
      totals.push_back(with.total);
      costs.push_back(with.total - without.total);
    }
    memory = peak_memory();
  }
  if (group.rank() != 0) return;

  const Spread ms = spread(totals);
  const double rate = 1e3 * static_cast<double>(ranks * setting.batch_size) / ms.p50;
  report.line(fmt::format("\n{}{} {}, {} rank{} x {} thread{} ({}), batch {} a rank: {:.1f} images/s",
                          o.model, o.model.starts_with("resnet") ? " (" + o.stem + " stem)" : "",
                          options.precision, ranks, ranks == 1 ? "" : "s", setting.threads,
                          setting.threads == 1 ? "" : "s", group.backend(), setting.batch_size, rate));
  report.line(fmt::format("step {:.1f} ms [p5 {:.1f} .. p95 {:.1f}] in {} steps after {}", ms.p50, ms.p5,
                          ms.p95, options.steps, options.warmup));
  report.line(fmt::format(
      "peak memory {:.0f} MiB resident, of it tensors {:.0f} MiB; the first step began {:.2f} s and "
      "ended {:.2f} s after the process",
      memory.resident_mib, memory.tensors_mib, first_step->begin_s, first_step->end_s));
  report.line(gradients.text());
  ordered_json row{{"model", o.model},
                   {"stem", o.stem},
                   {"precision", options.precision},
                   {"ranks", ranks},
                   {"cuda_graph", o.cuda_graph},
                   {"threads", setting.threads},
                   {"batch_size", setting.batch_size},
                   {"image_size", o.image_size},
                   {"images_per_s", rate},
                   {"step_ms", to_json(ms)},
                   {"peak_resident_mib", memory.resident_mib},
                   {"peak_tensors_mib", memory.tensors_mib},
                   {"gradient_bytes", gradients.gradients},
                   {"bucket_bytes", gradients.buckets},
                   {"gradients_and_buckets_of_gradients", gradients.ratio()},
                   {"first_step_begin_s", first_step->begin_s},
                   {"first_step_s", first_step->end_s}};
  if (ranks > 1) {
    const Spread cost = spread(costs);
    report.line(fmt::format(
        "synchronisation costs {:.1f} ms a step [p5 {:.1f} .. p95 {:.1f}]: against steps without, "
        "in turn",
        cost.p50, cost.p5, cost.p95));
    row["synchronisation_ms"] = to_json(cost);
  }
  const StepTimes step = typical(steps);
  for (const auto& [name, part] : phases(step))
    report.line(fmt::format("  {:<40} {:>8.2f} ms {:>5.1f} %", name, part, 100 * part / step.total));
  row["phases_ms"] = to_json(phases(step));
  row["operations_ms"] = step.operations;
  if (options.bound && sum_if(step, is_convolution) > 0)
    report_bounds(o, step, ranks * setting.batch_size, report, row);
  report.row(std::move(row));
}

void infer(const TrainBenchOptions& options, const Setting& setting, Report& report) {
  TrainerOptions o = options.trainer;
  o.batch_size = setting.batch_size;
  set_num_threads(setting.threads);
  forget_memory();
  const auto forward = make_inference(o);
  const Spread ms = spread(repeat_ms(
      forward,
      {.warmup = options.warmup, .min_calls = options.steps, .min_ms = 0, .max_calls = options.steps}));
  const double rate = 1e3 * setting.batch_size / ms.p50;
  report.line(fmt::format("{:>8} {:>8} {:>10.3f} {:>10.3f} {:>10.3f} {:>11.1f}", setting.threads,
                          setting.batch_size, ms.p50, ms.p5, ms.p95, rate));
  report.row({{"model", o.model},
              {"stem", o.stem},
              {"precision", options.precision},
              {"threads", setting.threads},
              {"batch_size", setting.batch_size},
              {"image_size", o.image_size},
              {"images_per_s", rate},
              {"forward_ms", to_json(ms)},
              {"peak_resident_mib", peak_memory().resident_mib}});
}

void run(const TrainBenchOptions& options, Report& report) {
  dist::LaunchOptions launch;
  launch.ranks = options.ranks;
  launch.device = options.inference ? "cpu" : options.device;
  dist::run_ranks(launch, [&](dist::ProcessGroup& group) {
    BRIGADE_CHECK(!options.inference || group.size() == 1, "--inference: measures one rank; got ",
                  group.size());
    if (group.rank() == 0) {
      report["ranks"] = group.size();
      report["mode"] = options.inference ? "inference" : "training";
      report["device"] = device_name(group.device());
      if (group.device() != Device{}) report.line(device_text(group));
      report.start();
      if (options.inference) {
        report.line(fmt::format("{} {}, forward only", options.trainer.model, options.precision));
        report.line(fmt::format("{:>8} {:>8} {:>10} {:>10} {:>10} {:>11}", "threads", "batch", "p50 ms", "p5",
                                "p95", "images/s"));
      }
    }
    group.barrier().wait();
    const double before = own_cpu_seconds();
    std::optional<FirstStep> first_step;
    for (const Setting& setting : settings(options)) {
      group.barrier().wait();
      if (options.inference)
        infer(options, setting, report);
      else
        train(options, setting, group, report, first_step);
    }
    const double own = own_cpu_of_all(group, before);
    if (group.rank() == 0) report.finish(own);
  });
}

}  // namespace
}  // namespace brigade::apps

int main(int argc, char** argv) {
  using namespace brigade;
  using apps::one_of;
  apps::TrainBenchOptions o;
  apps::Report report(argc, argv);
  CLI::App app(
      "Times training steps (forward, loss, backward, synchronisation, SGD with momentum) on random\n"
      "images in memory: images/s over all ranks, milliseconds a step and where they go, peak memory,\n"
      "memory of gradients and buckets, the time from the start of the process to the end of its first\n"
      "step, and the share of what the convolutions alone allow, by the library's algorithms and by our\n"
      "own.\n"
      "  bench_train --precision bf16 --batch-size 32,128 --threads 1,2\n"
      "  bench_train --ranks 2                     two ranks in this process\n"
      "  mpirun -np 2 bench_train                  two processes\n"
      "  bench_train --inference --precision int8  forward alone, at batch sizes 1 to 64",
      "bench_train");
  app.add_option("--model", o.trainer.model, "Network")
      ->check(one_of(models::model_names()))
      ->capture_default_str();
  app.add_option("--stem", o.trainer.stem, "ResNet's first layers")
      ->check(one_of(models::stem_names()))
      ->capture_default_str();
  app.add_option("--precision", o.precision, "Of activations and products; int8 with --inference")
      ->check(CLI::IsMember({"f32", "bf16", "int8"}))
      ->capture_default_str();
  app.add_option("--batch-size", o.batch_sizes,
                 "Images a rank, several comma-separated; default 32, or 1,2,4 .. 64")
      ->delimiter(',')
      ->check(CLI::Range(1, 65536));
  app.add_option("--threads", o.threads,
                 "Compute threads a rank, several comma-separated; default: cores / ranks")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  app.add_option("--ranks", o.ranks, "Threads of this process; under mpirun the launcher decides")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--device", o.device, "Where ranks compute; the bound and --inference are the CPU's")
      ->check(one_of(dist::device_names()))
      ->capture_default_str();
  app.add_flag("--cuda-graph", o.trainer.cuda_graph,
               "Record a step on the GPU once, communication included, and repeat it");
  app.add_option("--steps", o.steps, "Measured steps, or forwards")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--warmup", o.warmup, "Steps before")->check(CLI::Range(0, 100000))->capture_default_str();
  app.add_option("--image-size", o.trainer.image_size, "Side in pixels")
      ->check(CLI::Range(8, 1024))
      ->capture_default_str();
  app.add_flag("--loader", o.trainer.loader, "Take images through the data loader, with augmentation");
  app.add_flag("--inference", o.inference, "Forward only, in evaluation mode");
  app.add_flag("!--no-bound", o.bound, "Do not time the convolutions alone");
  report.add_flags(app);
  return apps::run_bench(app, argc, argv, [&] {
    BRIGADE_CHECK(o.precision != "int8" || o.inference, "--precision: int8 is for --inference only");
    o.trainer.precision = o.precision == "bf16"   ? DType::bf16
                          : o.precision == "int8" ? DType::i8
                                                  : DType::f32;
    BRIGADE_CHECK(!o.trainer.loader || o.trainer.image_size == 32,
                  "--loader: has images of 32 pixels; got --image-size ", o.trainer.image_size);
    if (o.batch_sizes.empty())
      o.batch_sizes = o.inference ? std::vector{1, 2, 4, 8, 16, 32, 64} : std::vector{32};
    report.speak(dist::launch_environment().rank == 0);
    apps::run(o, report);
  });
}
