// SPDX-License-Identifier: MIT
// apps/telemetry/recorder.cpp - see the header.
#include "apps/telemetry/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace brigade::telemetry {

std::string LateSteps::text() const {
  if (ranks.size() < 2 || steps == 0) return "";
  const auto worst = std::max_element(ranks.begin(), ranks.end(),
                                      [](const OfRank& a, const OfRank& b) { return a.times < b.times; });
  const double share = static_cast<double>(worst->times) / static_cast<double>(steps);
  // Among equal ranks each is last in one step of n.
  if (share < 0.5 || share < 1.5 / static_cast<double>(ranks.size())) return "";
  return fmt::format("rank {} was last in {:.0f} % of the steps, {:.1f} ms after the median rank",
                     worst - ranks.begin(), 100 * share, worst->lag_ms / static_cast<double>(worst->times));
}

Recorder::Recorder(dist::Ddp& ddp, RunFiles* files, Clock::time_point begin)
    : ddp_(ddp),
      files_(files),
      begin_(begin),
      is_root_(ddp.group().rank() == 0),
      gather_(ddp.group(), ddp.ledger()),
      last_gather_(Clock::now()) {
  late_.ranks.resize(static_cast<std::size_t>(ddp.group().size()));
  if (files_ != nullptr) files_->clocks(gather_.clocks());
}

Recorder::~Recorder() {
  try {
    for (const Waiting& waiting : waiting_) write(waiting, nullptr);
    if (files_ != nullptr) files_->finish(ddp_.ledger().timeline());
  } catch (const std::exception&) {
    // Another error is on its way already, or flush() has succeeded and there was nothing to write.
  }
}

void Recorder::keep_labels() {
  const std::int64_t epoch = ddp_.ledger().last().plan_epoch;
  if (labels_.count(epoch) != 0) return;
  std::vector<std::string> names;
  for (int b = 0; b < static_cast<int>(ddp_.plan().buckets.size()); ++b)
    names.push_back(ddp_.bucket_label(b));
  labels_[epoch] = std::make_shared<const std::vector<std::string>>(std::move(names));
  if (labels_.size() > 2) labels_.erase(labels_.begin());
}

void Recorder::add(const apps::StepReport& report) {
  if (!is_root_) return;
  keep_labels();
  const dist::StepRecord* const record = ddp_.ledger().find(report.ledger_step);
  const auto labels = record == nullptr ? labels_.end() : labels_.find(record->plan_epoch);
  waiting_.push_back({report, report.ledger_step, std::chrono::duration<double>(report.over - begin_).count(),
                      labels == labels_.end() ? nullptr : labels->second});
}

void Recorder::exchange() {
  const auto now = Clock::now();
  if (is_root_) keep_labels();
  if (gather_.under_way() && gather_.done()) take(gather_.finish());
  // Rank 0 has asked for it in the roll call of this step, so that all ranks come here together.
  if (ddp_.agreed(dist::Decision::gather_ledger)) {
    take(gather_.finish());
    gather_.begin();
    asked_ = false;
    last_gather_ = now;
  }
  if (is_root_ && !asked_ && (now - last_gather_ > kPeriod || waiting_.size() >= kMaxWaiting)) {
    ddp_.propose(dist::Decision::gather_ledger);
    asked_ = true;
  }
}

void Recorder::flush() {
  ddp_.ledger().settle();
  take(gather_.finish());
  gather_.begin();
  take(gather_.finish());
  last_gather_ = Clock::now();
}

void Recorder::take(std::vector<dist::GatheredStep> steps) {
  if (!is_root_ || steps.empty()) return;
  if (files_ != nullptr) files_->clocks(gather_.clocks());
  while (!waiting_.empty() && waiting_.front().ledger_step <= steps.back().step) {
    const auto at = std::find_if(steps.begin(), steps.end(), [&](const dist::GatheredStep& s) {
      return s.step == waiting_.front().ledger_step;
    });
    write(waiting_.front(), at == steps.end() ? nullptr : &*at);
    waiting_.pop_front();
  }
  for (const dist::GatheredStep& step : steps) {
    const dist::Straggler last = step.straggler();
    ++late_.steps;
    ++late_.ranks[static_cast<std::size_t>(last.rank)].times;
    late_.ranks[static_cast<std::size_t>(last.rank)].lag_ms += dist::milliseconds(last.lag);
  }
}

void Recorder::write(const Waiting& waiting, const dist::GatheredStep* gathered) {
  const dist::StepRecord* const mine =
      gathered != nullptr ? &gathered->ranks.front() : ddp_.ledger().find(waiting.ledger_step);
  if (files_ == nullptr || mine == nullptr) return;
  files_->step(waiting.report, *mine, gathered, ddp_.ledger().timeline(), waiting.labels, waiting.t_s);
}

}  // namespace brigade::telemetry
