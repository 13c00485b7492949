// SPDX-License-Identifier: MIT
// dist/bucket_reducer.cpp - the life of a bucket. Read next: dist/strategies/bucketed.cpp.
#include "dist/bucket_reducer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/fault_point.h"
#include "core/profiler.h"
#include "dist/scale.h"
#include "kernels/ops.h"

namespace brigade::dist {

// What one launched bucket does on the communication stream.
struct BucketReducer::Reduction {
  std::shared_ptr<optim::FlatParameters> parameters;
  std::shared_ptr<CommHook> hook;
  std::shared_ptr<Step> step;
  ReducerOptions options;
  int rank = 0, bucket = 0;
  std::string label;
  optim::Range range;
  bool completes = true;  // See BucketReducer::completes().
  bool finite = true;     // This rank's gradients.
  std::int64_t begin = 0;
  Tensor gradients;

  // Before the ranks meet.
  void prepare() {
    if (step->findings) {
      runtime(gradients.device())
          .note_use(step->findings->skip().raw(), runtime(gradients.device()).current_stream());
      step->findings->look_at_own(bucket, gradients);
      // A factor of 0 too: it leaves what is not finite so, and all ranks see it in the mean.
      if (const double factor = step->roll_call->scale(rank); factor != 1) ops::mul_(gradients, factor);
      return;
    }
    // The step is lost, but a hook that keeps errors back must not keep this.
    const double factor = finite ? step->roll_call->scale(rank) : 0;
    if (factor != 1) scale(gradients, factor);
  }

  void run(Transport& transport) {
    const ProfilerRange shown([this] { return label; });
    HookBucket what{*parameters, range, begin, begin + gradients.numel(), gradients, step->number};
    if (step->findings)
      what.sending = [this](const Tensor& sent) { step->findings->look_at_sent(bucket, sent); };
    const HookReport report = hook->mean(what, transport);
    step->wire_bytes[static_cast<std::size_t>(bucket)] = report.wire_bytes;
    if (gradients.device() != Device{}) {
      if (step->findings) step->findings->look_at_mean(gradients);
      return;
    }
    if (report.overflow >= 0 && step->overflow->kind == Finding::Kind::none)
      *step->overflow = {Finding::Kind::overflow, report.overflow, bucket};
    // Scaling by weights and rounding to 16 bits can make a finite gradient infinite; every rank has the same mean.
    const bool can_overflow = gradients.item_bytes() == 2 || step->roll_call->scale(rank) != 1;
    if (options.look_for_non_finite && can_overflow && step->overflow->kind == Finding::Kind::none &&
        !all_finite(gradients))
      *step->overflow = {Finding::Kind::mean_not_finite, range.begin, bucket};
    if (!options.norms || !completes) return;
    for (int i = range.begin; i < range.end; ++i)
      step->squares[static_cast<std::size_t>(i)] =
          ops::sum_of_squares(parameters->at(i).variable.grad_memory());
  }
};

BucketReducer::BucketReducer(ProcessGroup& group, std::shared_ptr<optim::FlatParameters> parameters,
                             const BucketPlan& plan, std::shared_ptr<CommHook> hook, Ledger& ledger,
                             ReducerOptions options)
    : group_(&group),
      parameters_(std::move(parameters)),
      hook_(std::move(hook)),
      ledger_(&ledger),
      options_(options),
      device_(parameters_->at(0).variable.value().device()) {
  for (const BucketSpec& spec : plan.buckets) {
    const int index = bucket_count();
    std::string label = str("bucket ", index, " (", parameters_->at(spec.range.begin).name);
    if (spec.range.count() > 1) label += str(" + ", spec.range.count() - 1, " more");
    if (spec.is_part()) label += str(" [", spec.part.begin, ", ", spec.part.end, ")");
    Tensor gradients = parameters_->gradients(spec.range);
    if (spec.is_part()) gradients = gradients.slice(0, spec.part.begin, spec.part.end);
    buckets_.push_back(
        {.spec = spec, .label = label + ")", .begin = spec.part.begin, .gradients = gradients});
    for (int i = spec.range.begin; i < spec.range.end; ++i) {
      if (i == static_cast<int>(buckets_of_.size())) buckets_of_.push_back({index, index});
      buckets_of_[static_cast<std::size_t>(i)].end = index + 1;
    }
  }
  ready_.resize(buckets_of_.size());
}

void BucketReducer::begin(std::shared_ptr<const RollCall> roll_call) {
  StepRecord& record = ledger_->current();
  step_ = std::make_shared<Step>();
  step_->number = record.step;
  step_->roll_call = std::move(roll_call);
  step_->squares.resize(ready_.size());
  step_->wire_bytes.resize(buckets_.size());
  if (on_device() && options_.look_for_non_finite)
    step_->findings =
        std::make_shared<DeviceFindings>(device_, group_->rank(), group_->size(), bucket_count());
  for (Bucket& bucket : buckets_) {
    bucket.missing = bucket.spec.range.count();
    bucket.work = Work();
    bucket.finite = true;
    bucket.launched = bucket.waited = false;
    bucket.record = {.bucket = static_cast<int>(&bucket - buckets_.data()),
                     .bytes = bucket.spec.bytes,
                     .parameters = bucket.spec.range.count()};
  }
  found_ = Finding();
  ready_.assign(ready_.size(), false);
  pending_ = static_cast<int>(ready_.size());
  record.ready.assign(ready_.size(), Clock::time_point{});
}

void BucketReducer::mark_ready(int position) {
  const auto at = static_cast<std::size_t>(position);
  BRIGADE_CHECK(!ready_[at], "bucket reducer: gradient of \"", parameters_->at(position).name,
                "\" became ready twice");
  ready_[at] = true;
  --pending_;
  if (faults_armed() && parameters_->at(position).variable.grad().defined())
    fault_point(FaultAt::gradient, parameters_->gradients({position, position + 1}),
                parameters_->at(position).name);
  // While it is in cache still.
  const bool finite = on_device() || !options_.look_for_non_finite ||
                      !parameters_->at(position).variable.grad().defined() ||
                      all_finite(parameters_->gradients({position, position + 1}));
  if (!finite && found_.kind == Finding::Kind::none)
    found_ = {Finding::Kind::not_finite, position, buckets_of_[at].begin};
  const auto now = Clock::now();
  ledger_->current().ready[at] = now;
  if (on_device())
    ledger_->stamp([at](StepRecord& record, Clock::time_point time) { record.ready[at] = time; });
  for (int b = buckets_of_[at].begin; b < buckets_of_[at].end; ++b) {
    Bucket& bucket = buckets_[static_cast<std::size_t>(b)];
    bucket.finite = bucket.finite && finite;
    bucket.record.last_ready = now;
    if (bucket.missing-- == bucket.spec.range.count()) bucket.record.first_ready = now;
  }
}

int BucketReducer::first_pending() const {
  const auto found = std::find(ready_.begin(), ready_.end(), false);
  return found == ready_.end() ? -1 : static_cast<int>(found - ready_.begin());
}

void BucketReducer::launch(int index) {
  Bucket& bucket = buckets_[static_cast<std::size_t>(index)];
  BRIGADE_CHECK(bucket.missing == 0, "bucket reducer: ", bucket.label, " was launched with ", bucket.missing,
                " gradients missing");
  fault_point(FaultAt::bucket, bucket.label);
  BRIGADE_CHECK(!std::exchange(bucket.launched, true), "bucket reducer: ", bucket.label,
                " was launched twice");
  const optim::Range range = bucket.spec.range, parts = buckets_of_[static_cast<std::size_t>(range.begin)];
  if (!bucket.spec.is_part() || index == parts.begin) parameters_->clear_absent(range);
  const auto reduction = std::make_shared<Reduction>(Reduction{.parameters = parameters_,
                                                               .hook = hook_,
                                                               .step = step_,
                                                               .options = options_,
                                                               .rank = group_->rank(),
                                                               .bucket = index,
                                                               .label = bucket.label,
                                                               .range = range,
                                                               .completes = completes(index),
                                                               .finite = bucket.finite,
                                                               .begin = bucket.begin,
                                                               .gradients = bucket.gradients});
  bucket.gradients.bump_version();
  bucket.work = group_->run({.operation = "all_reduce",
                             .tensor = bucket.gradients,
                             .op = Reduce::mean,
                             .prepare = [reduction] { reduction->prepare(); },
                             .run = [reduction](Transport& transport) { reduction->run(transport); },
                             .agreed = true},
                            bucket.label);
}

void BucketReducer::drain() {
  for (Bucket& bucket : buckets_) bucket.work.wait_until_left();
}

void BucketReducer::wait(int index) {
  Bucket& bucket = buckets_[static_cast<std::size_t>(index)];
  BRIGADE_CHECK(bucket.launched, "bucket reducer: ", bucket.label, " is waited for, but was never launched");
  if (std::exchange(bucket.waited, true)) return;
  const auto before = Clock::now();
  bucket.work.wait();
  bucket.record.waited = Clock::now() - before;
  const WorkTimes times = bucket.work.times();
  bucket.record.launch = times.launch;
  bucket.record.start = times.start;
  bucket.record.end = times.end;
  bucket.record.wire_bytes = step_->wire_bytes[static_cast<std::size_t>(index)];
  if (options_.norms && !on_device() && completes(index))
    for (int i = bucket.spec.range.begin; i < bucket.spec.range.end; ++i)
      bucket.record.square_norm += step_->squares[static_cast<std::size_t>(i)];
  ledger_->current().buckets.push_back(bucket.record);
  if (on_device()) record_later(bucket);
}

// The times of its gradients are known by then: they were asked for first.
void BucketReducer::record_later(const Bucket& bucket) {
  const std::size_t at = ledger_->current().buckets.size() - 1;
  ledger_->later(bucket.work.began(),
                 [at](StepRecord& record, Clock::time_point time) { record.buckets[at].start = time; });
  ledger_->later(
      bucket.work.left(), [at, range = bucket.spec.range](StepRecord& record, Clock::time_point time) {
        BucketRecord& to = record.buckets[at];
        to.end = time;
        const auto first = record.ready.begin() + range.begin, last = record.ready.begin() + range.end;
        to.first_ready = *std::min_element(first, last);
        to.last_ready = *std::max_element(first, last);
      });
}

std::vector<Finding> BucketReducer::finish() {
  if (on_device()) {
    if (step_->findings) step_->findings->exchange(*group_);
    for (int bucket = 0; bucket < bucket_count(); ++bucket) wait(bucket);
    if (step_->findings) step_->findings->wait();
    return {};
  }
  // Queued before anything is waited for, so that it follows the last bucket at once.
  std::optional<Verdict> verdict;
  if (options_.look_for_non_finite && group_->size() > 1) verdict.emplace(*group_, found_, step_->overflow);
  for (int bucket = 0; bucket < bucket_count(); ++bucket) wait(bucket);
  if (verdict) return verdict->wait();
  return {found_.kind != Finding::Kind::none ? found_ : *step_->overflow};
}

}  // namespace brigade::dist
