// SPDX-License-Identifier: MIT
// apps/report/advice.cpp - see the header.
#include "apps/report/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "dist/planner.h"

namespace brigade::report {
namespace {

// See is_noticeable().
constexpr double kNoticeable = 0.01;

std::string percent(double share) {
  const double p = 100 * share;
  return p > 0 && p < 1 ? fmt::format("{:.1f} %", p) : fmt::format("{:.0f} %", p);
}

// "bucket 5 (conv1 … layer1)"
std::string named(const BucketSummary& b) {
  return b.label.empty() ? fmt::format("bucket {}", b.bucket)
                         : fmt::format("bucket {} ({})", b.bucket, b.label);
}

struct SmallerLast {
  double bytes = 0, exposed_ms = 0;
};

// What the last bucket would expose if it were cut: the model of dist/planner.h with the costs of this run's buckets.
// Gradients of the last bucket are taken to arrive evenly between its first and last, which the files do not tell.
std::optional<SmallerLast> smaller_last(const RunSummary& run) {
  std::vector<dist::CostSample> samples;
  std::set<std::int64_t> sizes;
  for (const BucketSummary& b : run.buckets) {
    samples.push_back({b.bytes, 1e-3 * b.latency.p50});
    sizes.insert(b.bytes);
  }
  const BucketSummary& last = run.buckets.back();
  // Two sizes make a line through anything; from three on the line means something.
  if (sizes.size() < 3 || last.parameter_count < 2) return std::nullopt;
  const dist::CostModel cost = dist::fit_cost(samples);
  double free_s = 0;  // When the wire is done with the buckets before.
  for (std::size_t i = 0; i + 1 < run.buckets.size(); ++i)
    free_s = std::max(free_s, 1e-3 * run.buckets[i].end_ms);

  const double first_s = 1e-3 * last.first_ready_ms, ready_s = 1e-3 * last.ready_ms;
  const auto exposed =
      [&](std::int64_t tail) {  // With a last bucket of `tail` bytes and the rest ahead of it.
        const std::int64_t head = last.bytes - tail;
        const double share = static_cast<double>(head) / static_cast<double>(last.bytes);
        const double head_ready = first_s + share * (ready_s - first_s);
        const double head_end = std::max(free_s, head_ready) + cost.seconds(head);
        return std::max(head_end, ready_s) + cost.seconds(tail) - ready_s;
      };
  const double now = std::max(free_s, ready_s) + cost.seconds(last.bytes) - ready_s;
  SmallerLast best{0, 1e3 * now};
  // Powers of two, as people write caps.
  for (std::int64_t tail = 64 << 10; 2 * tail <= last.bytes; tail *= 2) {
    const double ms = 1e3 * exposed(tail);
    if (ms < best.exposed_ms) best = {static_cast<double>(tail), ms};
  }
  // Only what is worth a restart, and only where the model describes what was measured.
  const bool fits = std::abs(1e3 * now - last.exposed_ms) < 0.3 * last.exposed_ms;
  if (!fits || best.bytes == 0 || best.exposed_ms > 0.8 * last.exposed_ms) return std::nullopt;
  return best;
}

std::string about_waiting(const RunSummary& run) {
  std::string out =
      fmt::format("A step stands still for {}, of which communication is {}: the rest is waiting for ",
                  ms_text(run.waited_ms), ms_text(run.exposed_ms));
  constexpr double kMostly = 0.5;
  if (run.straggler < 0 || run.straggler_share < kMostly) return out + "other ranks, not always the same.";
  return out + fmt::format("others, and rank {} is last in {} of the steps, by {}.", run.straggler,
                           percent(run.straggler_share), ms_text(run.straggler_ms));
}

std::string about_bucket(const RunSummary& run, const BucketSummary& worst, double share_of_step) {
  std::string out = named(worst);
  out[0] = 'B';
  out += fmt::format(" is {} exposed", ms_text(worst.exposed_ms));
  if (worst.exposed_ms < 0.95 * run.exposed_ms)
    out += fmt::format(", the largest part of {}", ms_text(run.exposed_ms));
  out += fmt::format(" ({} of a step)", percent(share_of_step));
  if (worst.bucket != run.buckets.back().bucket) return out + ".";
  if (const std::optional<SmallerLast> cut = smaller_last(run))
    return out + fmt::format("; a last bucket of {} would expose about {}.", bytes_text(cut->bytes),
                             ms_text(cut->exposed_ms));
  return out + "; it is the last one, for which no backward is left to hide behind.";
}

}  // namespace

std::string ms_text(double ms) {
  const double size = std::abs(ms);
  return fmt::format("{:.{}f} ms", ms, size >= 100 ? 0 : size >= 1 ? 1 : 2);
}

bool is_noticeable(const RunSummary& run) { return run.exposed_ms >= kNoticeable * run.step_ms.p50; }

std::string bytes_text(double bytes) {
  if (bytes >= 1024 * 1024) return fmt::format("{:.1f} MiB", bytes / (1024 * 1024));
  if (bytes >= 1024) return fmt::format("{:.0f} KiB", bytes / 1024);
  return fmt::format("{:.0f} bytes", bytes);
}

std::string advice(std::span<const NamedRun> strategies) {
  std::vector<NamedRun> all;
  for (const NamedRun& s : strategies)
    if (s.run.steps > 0) all.push_back(s);
  if (all.empty()) return "No strategy has ended a step: there is nothing to compare yet.";
  std::sort(all.begin(), all.end(),
            [](const NamedRun& a, const NamedRun& b) { return a.run.step_ms.p50 < b.run.step_ms.p50; });
  const NamedRun &best = all.front(), &worst = all.back();
  if (all.size() == 1) return advice(best.run);
  // Medians of two runs of the same program differ by as much.
  const auto same = [&](const NamedRun& s) {
    return s.run.step_ms.p50 < (1 + kNoticeable) * best.run.step_ms.p50;
  };
  if (same(worst))
    return fmt::format("All strategies take the same {} a step, within 1 %.", ms_text(best.run.step_ms.p50));
  std::string names = best.name;
  std::size_t first = 1;
  for (; same(all[first]); ++first) names += " and " + all[first].name;
  std::string out = fmt::format("{} {} fastest: a step takes {}, with {} {}", names, first > 1 ? "are" : "is",
                                ms_text(best.run.step_ms.p50), worst.name, ms_text(worst.run.step_ms.p50));
  if (best.run.has_communication && worst.run.has_communication)
    out += fmt::format(", because {} of communication are exposed instead of {}",
                       ms_text(best.run.exposed_ms), ms_text(worst.run.exposed_ms));
  // Exposed time must explain the gain, or it is not the reason.
  const double gain = worst.run.step_ms.p50 - best.run.step_ms.p50;
  if (worst.run.exposed_ms - best.run.exposed_ms < 0.5 * gain)
    out = out.substr(0, out.find(", because")) + "; exposed communication does not explain the difference";
  return out + ".";
}

std::string advice(const RunSummary& run) {
  if (run.steps == 0) return "No step has ended: there is nothing to say about its time yet.";
  const std::string step = ms_text(run.step_ms.p50);
  if (run.ranks == 1)
    return fmt::format("One rank has nobody to talk to: a step of {} is all computation.", step);
  if (!run.has_communication || run.comm_ms <= 0)
    return fmt::format("A step takes {}; no communication was recorded.", step);

  // Standing still without communication: the others have not got their gradients yet.
  const double idle = run.waited_ms - run.exposed_ms;
  if (idle > run.exposed_ms && idle > kNoticeable * run.step_ms.p50) return about_waiting(run);

  const double share = run.step_ms.p50 > 0 ? run.exposed_ms / run.step_ms.p50 : 0;
  if (!is_noticeable(run))
    return fmt::format(
        "Communication is hidden: {} of {} run behind backward, and the {} that are left are {} of a step.",
        ms_text(run.hidden_ms), ms_text(run.comm_ms), ms_text(run.exposed_ms), percent(share));

  const auto worst = std::max_element(
      run.buckets.begin(), run.buckets.end(),
      [](const BucketSummary& a, const BucketSummary& b) { return a.exposed_ms < b.exposed_ms; });
  // Waiting for a rank looks like a slow wire: it is told apart by who was ready last.
  constexpr double kMostly = 0.5;
  if (worst != run.buckets.end() && worst->last_share >= kMostly && worst->lag_ms >= kMostly * run.exposed_ms)
    return fmt::format(
        "Rank {} is last in {} of the steps, by {}: most of the {} that are exposed are waiting for it.",
        worst->last_rank, percent(worst->last_share), ms_text(worst->lag_ms), ms_text(run.exposed_ms));

  // per_parameter hides what it can already, as bucketed does.
  if (run.hidden_ms < 0.05 * run.comm_ms && (run.sync == "naive" || run.sync == "flat"))
    return fmt::format(
        "Nothing is hidden: with --sync {} all {} of communication are added to a step ({} of it); "
        "--sync bucketed lets them run behind backward.",
        run.sync, ms_text(run.comm_ms), percent(share));

  const double computation = run.step_ms.p50 - run.exposed_ms;
  if (run.comm_ms > computation)
    return fmt::format(
        "Communication ({}) takes longer than all computation ({}), so no cut into buckets can hide it: "
        "fewer bytes (--comm-hook) or more work a step (--accumulate) would help.",
        ms_text(run.comm_ms), ms_text(computation));

  if (worst == run.buckets.end() || worst->exposed_ms <= 0)
    return fmt::format(
        "Of {} of communication {} are exposed ({} of a step); no bucket was recorded that could be named.",
        ms_text(run.comm_ms), ms_text(run.exposed_ms), percent(share));
  return about_bucket(run, *worst, share);
}

}  // namespace brigade::report
