// SPDX-License-Identifier: MIT
// apps/bench/all_reduce.cpp - all-reduce through ProcessGroup, as users get it, in the columns of nccl-tests or of
// the OSU micro-benchmarks; beside it, size by size in the same run, MPI's own and the least it can cost.
// Read before: dist/process_group.h, apps/bench/zero_copy.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "apps/bench/report.h"
#include "apps/bench/zero_copy.h"
#include "core/choices.h"
#include "dist/launch.h"
#include "kernels/ops.h"

namespace brigade::apps {
namespace {

using dist::ProcessGroup;
using dist::Reduce;

struct Datatype {
  std::string_view name;  // As nccl-tests call it.
  DType dtype;
};
constexpr std::array kDatatypes{Datatype{"float", DType::f32}, Datatype{"double", DType::f64},
                                Datatype{"half", DType::f16},  Datatype{"bfloat16", DType::bf16},
                                Datatype{"int32", DType::i32}, Datatype{"int64", DType::i64},
                                Datatype{"uint8", DType::u8}};
struct Operation {
  std::string_view name;
  Reduce op;
};
constexpr std::array kOperations{Operation{"sum", Reduce::sum}, Operation{"avg", Reduce::mean},
                                 Operation{"min", Reduce::min}, Operation{"max", Reduce::max},
                                 Operation{"prod", Reduce::prod}};

struct AllReduceOptions {
  int ranks = 2;
  std::string min_bytes = "1K", max_bytes = "64M";
  std::int64_t factor = 2;
  int iterations = 20, warmup = 5;
  std::string op = "sum", datatype = "float", format = "nccl", memory = "shared";
  int check = 1;
  bool zero_copy = false, mpi = false;
};

// "64M" -> 64 MiB, as nccl-tests read it.
std::int64_t parse_bytes(const char* flag, const std::string& text) {
  std::size_t used = 0;
  double value = -1;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  const std::string unit = text.substr(used);
  const double scale = unit.empty() || unit == "B"  ? 1
                       : unit == "K" || unit == "k" ? 1024
                       : unit == "M" || unit == "m" ? 1024 * 1024
                       : unit == "G" || unit == "g" ? 1024 * 1024 * 1024
                                                    : -1;
  BRIGADE_CHECK(used > 0 && scale > 0 && value * scale >= 1 && value * scale <= 8e9, flag,
                ": needs bytes like 1024, 1K or 64M, at most 8e9; got \"", text, "\"");
  return static_cast<std::int64_t>(value * scale);
}

std::vector<std::int64_t> sizes(const AllReduceOptions& o) {
  const std::int64_t first = parse_bytes("-b", o.min_bytes), last = parse_bytes("-e", o.max_bytes);
  BRIGADE_CHECK(first <= last, "-b: must not exceed -e; got ", o.min_bytes, " and ", o.max_bytes);
  std::vector<std::int64_t> out;
  for (std::int64_t bytes = first; bytes <= last; bytes *= o.factor) out.push_back(bytes);
  return out;
}

// Small whole numbers that differ between ranks and between neighbours.
double pattern(int rank, std::int64_t i) { return static_cast<double>((rank + 1) * (i % 3 + 1)); }

// What an integer dtype keeps of a whole number: arithmetic in it is modulo 2^bits.
double wrapped(double x, DType dtype) {
  if (dtype == DType::u8) return std::fmod(x, 0x1p8);  // Never negative.
  if (dtype == DType::i32) return static_cast<std::int32_t>(static_cast<std::int64_t>(std::fmod(x, 0x1p32)));
  return x;
}

double expected(Reduce op, DType dtype, int ranks, std::int64_t i) {
  double out = pattern(0, i);
  for (int r = 1; r < ranks; ++r) {
    const double x = pattern(r, i);
    out = op == Reduce::min    ? std::min(out, x)
          : op == Reduce::max  ? std::max(out, x)
          : op == Reduce::prod ? out * x
                               : out + x;
    if (op == Reduce::prod) out = wrapped(out, dtype);
  }
  return op == Reduce::mean ? out / ranks : out;
}

// Elements of one all-reduce that are wrong, over all ranks.
std::int64_t count_wrong(ProcessGroup& group, Tensor t, Reduce op) {
  std::vector<double> mine(static_cast<std::size_t>(t.numel()));
  for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = pattern(group.rank(), static_cast<std::int64_t>(i));
  ops::copy_(t, ops::cast(Tensor::from(mine, t.shape()), t.dtype()));
  group.all_reduce(t, op).wait();
  const std::vector<double> sums = ops::cast(t, DType::f64).to_vector<double>();
  // One rounding of a 16-bit float; integers truncate a mean.
  const double relative = is_floating(t.dtype()) ? (size_of(t.dtype()) == 2 ? 0.01 : 1e-6) : 0;
  const double absolute = is_floating(t.dtype()) || op != Reduce::mean ? 0 : 1;
  Tensor wrong = Tensor::zeros({1}, DType::i64);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const double wanted = expected(op, t.dtype(), group.size(), static_cast<std::int64_t>(i));
    const bool fits = std::abs(sums[i] - wanted) <= relative * std::abs(wanted) + absolute * 0.999;
    *wrong.data<std::int64_t>() += fits ? 0 : 1;
  }
  group.all_reduce(wrong, Reduce::sum).wait();
  ops::fill_(t, 0);  // Sums of sums would overflow while they are timed.
  return static_cast<std::int64_t>(wrong.item());
}

// Microseconds a call, on this rank.
void time_calls(ProcessGroup& group, int warmup, int iterations, std::vector<double>& times,
                const std::function<void()>& call) {
  group.barrier().wait();
  for (int i = -warmup; i < iterations; ++i) {
    const auto begin = Clock::now();
    call();
    if (i >= 0) times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
}

struct Measured {
  std::vector<double> in_place, out_of_place, mpi, zero_copy;  // µs a call, on rank 0.
  double mean_over_ranks = 0;                                  // Of in_place.
  std::int64_t wrong = 0;
};

Measured measure(const AllReduceOptions& o, std::int64_t bytes, ProcessGroup& group, ProcessGroup* mpi,
                 ZeroCopyBaseline* zero_copy) {
  const DType dtype = choose("datatype", o.datatype, kDatatypes).dtype;
  const Reduce op = choose("operation", o.op, kOperations).op;
  const Shape shape{std::max<std::int64_t>(1, bytes / size_of(dtype))};
  const std::int64_t size = numel(shape) * size_of(dtype);
  // As gradients lie, where ranks share memory; or anywhere.
  Tensor t = o.memory == "shared" ? Tensor::over(group.allocate_shared(size), shape, dtype)
                                  : Tensor::zeros(shape, dtype);
  const Tensor source = Tensor::zeros(shape, dtype);
  ops::fill_(t, 0);
  Measured m;
  if (o.check != 0) m.wrong = count_wrong(group, t, op);

  // Rounds in turn, so that all see the same machine.
  constexpr int kRounds = 4;
  const int iterations = (o.iterations + kRounds - 1) / kRounds;
  for (int round = 0; round < kRounds; ++round) {
    const int warmup = round == 0 ? o.warmup : 1;
    time_calls(group, warmup, iterations, m.in_place, [&] { group.all_reduce(t, op).wait(); });
    time_calls(group, warmup, iterations, m.out_of_place, [&] {
      ops::copy_(t, source);
      group.all_reduce(t, op).wait();
    });
    if (mpi != nullptr) time_calls(*mpi, warmup, iterations, m.mpi, [&] { mpi->all_reduce(t, op).wait(); });
    if (zero_copy != nullptr) {
      const std::vector<double> times = zero_copy->measure(size, warmup, iterations);
      m.zero_copy.insert(m.zero_copy.end(), times.begin(), times.end());
    }
    group.barrier().wait();  // The others wait here, asleep, while rank 0 looks after the baseline.
  }
  Tensor mean = Tensor::from(std::vector<double>{std::accumulate(m.in_place.begin(), m.in_place.end(), 0.0) /
                                                 static_cast<double>(m.in_place.size())},
                             {1});
  group.all_reduce(mean, Reduce::mean).wait();
  m.mean_over_ranks = mean.item();
  return m;
}

class Table {
 public:
  Table(const AllReduceOptions& options, int ranks, Report& report)
      : options_(options), bus_factor_(2.0 * (ranks - 1) / ranks), report_(report) {}

  void head(std::string_view backend, int ranks) {
    if (options_.format == "osu") {
      report_.line(fmt::format("# All-reduce latency, {} ranks ({}), {} of {}", ranks, backend, options_.op,
                               options_.datatype));
      report_.line(fmt::format("{:<10}{:>20}", "# Size", "Avg Latency(us)"));
      return;
    }
    report_.line(
        fmt::format("# {} ranks ({}), {} iterations after {}; times are medians; out-of-place copies first",
                    ranks, backend, options_.iterations, options_.warmup));
    const std::string more = fmt::format("{}{}", options_.zero_copy ? "      zero-copy  of it" : "",
                                         options_.mpi ? "        mpi  x faster" : "");
    report_.line(fmt::format("#{:>49}{:>34}{:>34}", "", "out-of-place", "in-place"));
    report_.line(fmt::format("#{:>11}{:>13}{:>9}{:>8}{:>8}{:>9}{:>9}{:>8}{:>7} {:>9}{:>9}{:>8}{:>7}{}",
                             "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong",
                             "time", "algbw", "busbw", "#wrong", more));
    report_.line(fmt::format("#{:>11}{:>13}{:>9}{:>8}{:>8}{:>9}{:>9}{:>8}{:>7} {:>9}{:>9}{:>8}{:>7}", "(B)",
                             "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)",
                             "(GB/s)", ""));
  }

  void row(std::int64_t bytes, std::int64_t count, const Measured& m) {
    const Spread in = spread(m.in_place), out = spread(m.out_of_place);
    const auto bandwidth = [&](double us) { return 1e-3 * static_cast<double>(bytes) / us; };  // GB/s
    nlohmann::ordered_json json{{"size", bytes},
                                {"count", count},
                                {"type", options_.datatype},
                                {"redop", options_.op},
                                {"root", -1},
                                {"in_place_us", to_json(in)},
                                {"out_of_place_us", to_json(out)},
                                {"algbw", bandwidth(in.p50)},
                                {"busbw", bus_factor_ * bandwidth(in.p50)},
                                {"mean_us", m.mean_over_ranks}};
    if (options_.check != 0) json["wrong"] = m.wrong;
    const std::string wrong = options_.check != 0 ? std::to_string(m.wrong) : "N/A";
    std::string more;
    if (!m.zero_copy.empty()) {
      const Spread best = spread(m.zero_copy);
      json["zero_copy_us"] = to_json(best);
      json["share_of_zero_copy"] = best.p50 / in.p50;
      more += fmt::format("{:>15.1f}{:>5.0f} %", best.p50, 100 * best.p50 / in.p50);
    }
    if (!m.mpi.empty()) {
      const Spread mpi = spread(m.mpi);
      json["mpi_us"] = to_json(mpi);
      json["faster_than_mpi"] = mpi.p50 / in.p50;
      more += fmt::format("{:>11.1f}{:>10.2f}", mpi.p50, mpi.p50 / in.p50);
    }
    bus_sum_ += bus_factor_ * bandwidth(in.p50);
    ++rows_;
    wrong_ += m.wrong;
    if (options_.format == "osu")
      report_.line(fmt::format("{:<10}{:>20.2f}", bytes, m.mean_over_ranks));
    else
      report_.line(fmt::format(
          "{:>12}{:>13}{:>9}{:>8}{:>8}{:>9.1f}{:>9.2f}{:>8.2f}{:>7} {:>9.1f}{:>9.2f}{:>8.2f}{:>7}{}", bytes,
          count, options_.datatype, options_.op, -1, out.p50, bandwidth(out.p50),
          bus_factor_ * bandwidth(out.p50), wrong, in.p50, bandwidth(in.p50), bus_factor_ * bandwidth(in.p50),
          wrong, more));
    report_.row(std::move(json));
  }

  std::int64_t foot() {
    if (options_.format != "osu") {
      report_.line(fmt::format("# Out of bounds values : {} {}", wrong_, wrong_ == 0 ? "OK" : "FAILED"));
      report_.line(fmt::format("# Avg bus bandwidth    : {:.4g}", bus_sum_ / std::max(1, rows_)));
    }
    return wrong_;
  }

 private:
  const AllReduceOptions& options_;
  double bus_factor_;
  Report& report_;
  double bus_sum_ = 0;
  int rows_ = 0;
  std::int64_t wrong_ = 0;
};

void run(const AllReduceOptions& o, Report& report) {
  const std::vector<std::int64_t> all = sizes(o);
  const dist::LaunchEnvironment place = dist::launch_environment();
  BRIGADE_CHECK(!o.zero_copy || (o.datatype == "float" && o.op == "sum"),
                "--zero-copy-baseline: sums floats; got -o ", o.op, " -d ", o.datatype);
  BRIGADE_CHECK(!o.mpi || place.mpi, "--mpi: needs processes: mpirun -np N bench_all_reduce --mpi");
  BRIGADE_CHECK(!o.zero_copy || place.local_size == place.size,
                "--zero-copy-baseline: needs all ranks on one host");
  // Before MPI and any thread: a fork copies only the one that calls it.
  std::optional<ZeroCopyBaseline> zero_copy;
  if (o.zero_copy && place.rank == 0) zero_copy.emplace(place.mpi ? place.size : o.ranks, all.back());

  dist::LaunchOptions launch{.ranks = o.ranks};
  if (place.size > 1) launch.ranks = 1;
  if (place.mpi) launch.job = dist::join_mpi_job();
  dist::run_ranks(launch, [&](ProcessGroup& group) {
    std::optional<ProcessGroup> mpi;
    if (o.mpi)
      mpi.emplace([&] { return launch.job->connect(dist::InHost::mpi); }, dist::GroupOptions{},
                  launch.job->stream());
    Table table(o, group.size(), report);
    if (group.rank() == 0) {
      report["ranks"] = group.size();
      report["backend"] = std::string(group.backend());
      report["memory"] = o.memory;
      report.start();
      table.head(group.backend(), group.size());
    }
    group.barrier().wait();
    const double before = own_cpu_seconds();
    const std::int64_t item = size_of(choose("datatype", o.datatype, kDatatypes).dtype);
    for (const std::int64_t bytes : all) {
      const Measured m = measure(o, bytes, group, mpi ? &*mpi : nullptr,
                                 zero_copy && group.rank() == 0 ? &*zero_copy : nullptr);
      const std::int64_t count = std::max<std::int64_t>(1, bytes / item);
      if (group.rank() == 0) table.row(count * item, count, m);
    }
    if (mpi) mpi->close();
    if (group.rank() == 0) zero_copy.reset();  // Processes that have been waited for count as ours.
    const double own = own_cpu_of_all(group, before);
    if (group.rank() != 0) return;
    const std::int64_t wrong = table.foot();
    report.finish(own);
    BRIGADE_CHECK(wrong == 0, "all-reduce: ", wrong, " elements are wrong");
  });
  if (launch.job) launch.job->finish();
}

}  // namespace
}  // namespace brigade::apps

int main(int argc, char** argv) {
  using namespace brigade;
  using apps::one_of;
  apps::AllReduceOptions o;
  apps::Report report(argc, argv);
  CLI::App app(
      "Times all-reduce by size, with the columns and flags of nccl-tests: size in bytes, time in "
      "microseconds, algbw = "
      "size / time and\nbusbw = algbw 2 (n - 1) / n in GB/s (1e9 bytes).\n"
      "  bench_all_reduce --ranks 2 --zero-copy-baseline    two ranks in this process\n"
      "  mpirun -np 2 bench_all_reduce --mpi                two processes, beside MPI_Allreduce",
      "bench_all_reduce");
  app.add_option("--ranks,-t,--nthreads", o.ranks,
                 "Threads of this process; under mpirun the launcher decides")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("-b,--minbytes", o.min_bytes, "Smallest size, like 1024 or 1K")->capture_default_str();
  app.add_option("-e,--maxbytes", o.max_bytes, "Largest size, like 64M")->capture_default_str();
  app.add_option("-f,--stepfactor", o.factor, "From one size to the next")
      ->check(CLI::Range(2, 1024))
      ->capture_default_str();
  app.add_option("-n,--iters", o.iterations, "Timed calls of each size")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("-w,--warmup_iters", o.warmup, "Calls before")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  app.add_option("-o,--op", o.op, "Operation")
      ->check(one_of(names(apps::kOperations)))
      ->capture_default_str();
  app.add_option("-d,--datatype", o.datatype, "Type of the elements")
      ->check(one_of(names(apps::kDatatypes)))
      ->capture_default_str();
  app.add_option("-c,--check", o.check, "Check results once a size: 1 or 0")
      ->check(CLI::Range(0, 1))
      ->capture_default_str();
  app.add_option("--format", o.format,
                 "Columns of nccl-tests, or of the OSU micro-benchmarks (mean over ranks and calls)")
      ->check(CLI::IsMember({"nccl", "osu"}))
      ->capture_default_str();
  app.add_option("--memory", o.memory,
                 "Where the numbers lie: shared is where Ddp puts gradients, ordinary anywhere")
      ->check(CLI::IsMember({"shared", "ordinary"}))
      ->capture_default_str();
  app.add_flag(
      "--zero-copy-baseline", o.zero_copy,
      "Time a plain reduce in memory shared by forked processes too: the least it can cost on one host");
  app.add_flag("--mpi", o.mpi, "Time MPI_Allreduce in place too (under mpirun)");
  report.add_flags(app);
  return apps::run_bench(app, argc, argv, [&] {
    report.speak(dist::launch_environment().rank == 0);
    apps::run(o, report);
  });
}
