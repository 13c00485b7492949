// SPDX-License-Identifier: MIT
// apps/bench/op.cpp - every operation of a model's training step on its own: GFLOP/s or GB/s, and what share of what
// this machine can do at best. Read before: apps/bench/op_cases.h.
#include <fmt/format.h>

#include <algorithm>

#include "apps/bench/ceilings.h"
#include "apps/bench/op_cases.h"
#include "apps/bench/report.h"
#include "apps/bench/tune.h"
#include "core/parallel.h"
#include "models/catalog.h"

namespace brigade::apps {
namespace {

struct OpOptions {
  RecordOptions record;
  std::string precision = "f32";
  int threads = available_cores();
  std::vector<std::string> ops;
  std::vector<std::string> shapes;
  double min_ms = 100;
  TuneOptions tune;
};

bool wanted(const OpOptions& options, std::string_view family) {
  return options.ops.empty() ||
         std::find(options.ops.begin(), options.ops.end(), family) != options.ops.end();
}

// "32x64x8x8" or "32,64,8,8"
std::vector<std::int64_t> numbers(const std::string& text) {
  std::vector<std::int64_t> out;
  std::size_t at = 0;
  while (at <= text.size()) {
    const std::size_t end = std::min(text.find_first_of("x,", at), text.size());
    const std::string word = text.substr(at, end - at);
    const bool digits =
        !word.empty() && word.size() < 12 && word.find_first_not_of("0123456789") == std::string::npos;
    BRIGADE_CHECK(digits, "--shape: needs whole numbers like 32x64x8x8; got \"", text, "\"");
    out.push_back(std::stoll(word));
    at = end + 1;
  }
  return out;
}

std::vector<SpanList::Entry> typed_spans(const OpOptions& options) {
  BRIGADE_CHECK(options.ops.size() == 1, "--shape: needs one --op, whose shape it is; got ",
                options.ops.size());
  std::vector<SpanList::Entry> out;
  for (const OpFamily& family : op_families()) {
    if (family.name != options.ops[0]) continue;
    const auto needed = std::count(family.numbers.begin(), family.numbers.end(), ',') + 1;
    for (const std::string& shape : options.shapes) {
      const auto n = numbers(shape);
      BRIGADE_CHECK(static_cast<std::ptrdiff_t>(n.size()) == needed, "--shape: ", family.name, " needs ",
                    family.numbers, "; got \"", shape, "\"");
      for (SpanList::Entry& span : family.from_numbers(n)) out.push_back(std::move(span));
    }
  }
  return out;
}

// What the model calls, and what it does not call by itself: an optimizer's step, and products for comparison.
std::vector<SpanList::Entry> model_spans(const OpOptions& options) {
  Recorded recorded = record_step(options.record);
  std::vector<SpanList::Entry> out = std::move(recorded.spans);
  for (const OpFamily& family : op_families()) {
    const auto add = [&](const std::vector<std::int64_t>& n) {
      for (SpanList::Entry& span : family.from_numbers(n)) out.push_back(std::move(span));
    };
    if (family.name == "optimizer") add({recorded.parameters});
    if (family.name == "matmul")
      for (const std::int64_t n : {256, 512, 1024, 2048}) add({n, n, n});
  }
  return out;
}

std::string family_of(std::string_view span) {
  for (const OpFamily& family : op_families())
    if (std::find(family.spans.begin(), family.spans.end(), span) != family.spans.end())
      return std::string(family.name);
  return {};
}

void run(const OpOptions& options, Report& report) {
  set_num_threads(options.threads);
  const DType precision = options.record.precision;
  report["threads"] = options.threads;
  report["precision"] = options.precision;
  const auto spans = count_equal(options.shapes.empty() ? model_spans(options) : typed_spans(options));
  report.start();
  const double fma = fma_gflops();
  const double products = precision == DType::f32 ? fma : matmul_gflops(precision);
  CopyBandwidth copy;
  const double memory = copy.gb_per_s(1 << 28);
  report["ceilings"] = {
      {"f32_fma_gflops", fma}, {"products_gflops", products}, {"memory_copy_gb_per_s", memory}};
  report.line(fmt::format(
      "ceilings with {} threads: {:.0f} GFLOP/s f32 multiply-adds, {} {:.1f} GB/s copying 256 MiB",
      options.threads, fma,
      precision == DType::f32
          ? std::string()
          : fmt::format("{:.0f} GFLOP/s {} matrix products,", products, options.precision),
      memory));
  report.line(fmt::format("{:<25} {:<54} {:>5} {:>9} {:>9} {:>9} {:>10} {:>8}", "", "", "calls", "p50 ms",
                          "p5", "p95", "", "of best"));
  std::vector<std::string> unknown;
  for (const auto& [span, calls] : spans) {
    const std::string family = family_of(span.name);
    if (family.empty()) unknown.emplace_back(span.name);
    if (family.empty() || !wanted(options, family)) continue;
    for (const OpCase& c : make_cases(span, precision)) {
      const Spread ms = spread(repeat_ms(c.call, {.min_ms = options.min_ms}));
      const double rate = 1e-6 * (c.flops > 0 ? c.flops : c.bytes) / ms.p50;  // GFLOP/s or GB/s
      const double best = c.flops > 0 ? products : copy.gb_per_s(c.bytes);
      const char* const unit = c.flops > 0 ? "GFLOP/s" : "GB/s";
      report.line(fmt::format("{:<25} {:<54} {:>5} {:>9.3f} {:>9.3f} {:>9.3f} {:>8.1f} {:<7} {:>4.0f} %",
                              c.op, c.shape, calls, ms.p50, ms.p5, ms.p95, rate, unit, 100 * rate / best));
      report.row({{"op", c.op},
                  {"shape", c.shape},
                  {"calls", calls},
                  {"ms", to_json(ms)},
                  {"rate", rate},
                  {"unit", unit},
                  {"share_of_ceiling", rate / best}});
    }
  }
  std::sort(unknown.begin(), unknown.end());
  unknown.erase(std::unique(unknown.begin(), unknown.end()), unknown.end());
  std::string rest;
  for (const std::string& name : unknown) rest += (rest.empty() ? "" : ", ") + name;
  if (!rest.empty() && options.ops.empty()) report.line("also called, not timed alone: " + rest);
  report.finish();
}

std::string op_help() {
  std::string help = "Which, comma-separated; with numbers for --shape:";
  for (const OpFamily& family : op_families())
    help += str("\n    ", family.name, ": ", family.description, " (", family.numbers, ")");
  return help;
}

}  // namespace
}  // namespace brigade::apps

int main(int argc, char** argv) {
  using namespace brigade;
  using apps::one_of;
  apps::OpOptions o;
  apps::Report report(argc, argv);
  CLI::App app(
      "Times the operations of a model's training step alone, on memory in the model's layout. Operations "
      "made of "
      "products count\nas GFLOP/s of a direct algorithm (so that a faster algorithm may pass 100 %), others "
      "as GB/s with "
      "each operand moved\nonce. The ceiling of products is f32 multiply-adds in registers, or in bf16 the "
      "best square "
      "matrix product here; of memory a\ncopy of the same size.",
      "bench_op");
  app.add_option("--op", o.ops, apps::op_help())->delimiter(',')->check([](const std::string& name) {
    std::string known;
    for (const apps::OpFamily& family : apps::op_families()) {
      if (family.name == name) return std::string();
      known += str(known.empty() ? "" : ", ", family.name);
    }
    return str("unknown operation \"", name, "\"; choose from ", known);
  });
  app.add_option("--shape", o.shapes,
                 "Instead of the model's shapes; numbers joined by x, as --op lists them")
      ->type_name("NxCx...");
  app.add_option("--model", o.record.model, "Whose shapes")
      ->check(one_of(models::model_names()))
      ->capture_default_str();
  app.add_option("--stem", o.record.stem, "ResNet's first layers")
      ->check(one_of(models::stem_names()))
      ->capture_default_str();
  app.add_option("--batch-size", o.record.batch_size, "Images")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--image-size", o.record.image_size, "Side in pixels")
      ->check(CLI::Range(8, 1024))
      ->capture_default_str();
  app.add_option("--precision", o.precision, "Of activations")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->capture_default_str();
  app.add_option("--threads", o.threads, "Compute threads")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--min-ms", o.min_ms, "Each is timed for at least so many milliseconds, and five calls")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  app.add_option("--tune", o.tune.path,
                 "Instead: time every convolution algorithm on ResNet-18's shapes, both stems, f32 and bf16, "
                 "and write "
                 "the table of choices\nto this file (kernels/cpu/conv_table.cpp of the source); some "
                 "minutes on an idle "
                 "machine with AMX")
      ->type_name("FILE");
  app.add_option("--tune-images", o.tune.images, "Batch sizes for --tune")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  report.add_flags(app);
  return apps::run_bench(app, argc, argv, [&] {
    if (!o.tune.path.empty()) {
      set_num_threads(o.threads);
      report.start();
      apps::tune_convolutions(o.tune, [&](const std::string& line) { report.line(line); });
      return report.finish();
    }
    o.record.precision = o.precision == "bf16" ? DType::bf16 : DType::f32;
    apps::run(o, report);
  });
}
