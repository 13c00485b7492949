// SPDX-License-Identifier: MIT
// dist/bucket_reducer.cpp - the life of a bucket.
#include "dist/bucket_reducer.h"

namespace brigade::dist {

BucketReducer::BucketReducer(ProcessGroup& group, optim::FlatParameters& parameters, const BucketPlan& plan,
                             Ledger& ledger)
    : group_(&group), parameters_(&parameters), ledger_(&ledger) {
  for (const BucketSpec& spec : plan.buckets) {
    const int index = bucket_count();
    std::string label = str("bucket ", index, " (", parameters.at(spec.range.begin).name);
    if (spec.range.count() > 1) label += str(" + ", spec.range.count() - 1, " more");
    buckets_.push_back({spec, label + ")", parameters.gradients(spec.range), 0, {}, {}});
    bucket_of_.insert(bucket_of_.end(), static_cast<std::size_t>(spec.range.count()), index);
  }
  ready_.resize(bucket_of_.size());
}

void BucketReducer::begin() {
  for (Bucket& bucket : buckets_) {
    bucket.missing = bucket.spec.range.count();
    bucket.work = Work();
    bucket.record = {.bucket = static_cast<int>(&bucket - buckets_.data()), .bytes = bucket.spec.bytes};
  }
  ready_.assign(ready_.size(), false);
  ledger_->current().ready.assign(ready_.size(), Clock::time_point{});
}

void BucketReducer::mark_ready(int position) {
  const auto at = static_cast<std::size_t>(position);
  BRIGADE_CHECK(!ready_[at], "bucket reducer: gradient of \"", parameters_->at(position).name,
                "\" became ready twice");
  ready_[at] = true;
  Bucket& bucket = buckets_[static_cast<std::size_t>(bucket_of_[at])];
  bucket.record.last_ready = Clock::now();
  ledger_->current().ready[at] = bucket.record.last_ready;
  if (bucket.missing-- == bucket.spec.range.count()) bucket.record.first_ready = bucket.record.last_ready;
}

void BucketReducer::launch(int index) {
  Bucket& bucket = buckets_[static_cast<std::size_t>(index)];
  BRIGADE_CHECK(bucket.missing == 0, "bucket reducer: ", bucket.label, " was launched with ", bucket.missing,
                " gradients missing");
  parameters_->clear_absent(bucket.spec.range);
  bucket.work = group_->all_reduce(bucket.gradients, Reduce::mean, bucket.label);
}

void BucketReducer::drain() {
  for (Bucket& bucket : buckets_) bucket.work.event().wait();
}

void BucketReducer::wait(int index) {
  Bucket& bucket = buckets_[static_cast<std::size_t>(index)];
  const auto before = Clock::now();
  bucket.work.wait();
  bucket.record.waited = Clock::now() - before;
  const WorkTimes times = bucket.work.times();
  bucket.record.launch = times.launch;
  bucket.record.start = times.start;
  bucket.record.end = times.end;
  ledger_->current().buckets.push_back(bucket.record);
}

}  // namespace brigade::dist
