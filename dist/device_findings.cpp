// SPDX-License-Identifier: MIT
// dist/device_findings.cpp - see the header.
#include "dist/device_findings.h"

#include <algorithm>

#include "core/graph.h"
#include "dist/scale.h"
#include "kernels/ops.h"

namespace brigade::dist {

DeviceFindings::DeviceFindings(Device device, int rank, int size, int buckets)
    : rank_(rank),
      size_(size),
      buckets_(buckets),
      flags_(Tensor::zeros({index(size, 0, 0) + size + 1}, DType::i32, device)) {}

// A flag is set or stays: what several ranks or buckets share needs no order.
void DeviceFindings::flag(const Tensor& x, std::int64_t at) {
  if (x.numel() > 0) ops::flag_non_finite(x, flags_, at);
}

void DeviceFindings::look_at_loss(const Tensor& loss) {
  flag(loss, loss_index(rank_));
  flag(loss, flags_.numel() - 1);  // The step does not count, even if all gradients are finite.
}
void DeviceFindings::look_at_own(int bucket, const Tensor& gradients) {
  flag(gradients, index(rank_, bucket, 0));
}
void DeviceFindings::look_at_sent(int bucket, const Tensor& sent) { flag(sent, index(rank_, bucket, 1)); }
void DeviceFindings::look_at_mean(const Tensor& gradients) { flag(gradients, flags_.numel() - 1); }

void DeviceFindings::exchange(ProcessGroup& group) {
  const bool fetches = !is_capturing(flags_.device());
  work_ = reduce(group, "verdict", true, fetches);
  if (fetches) fetched_ = work_;
}

void DeviceFindings::fetch(ProcessGroup& group) { fetched_ = reduce(group, "fetch", false, true); }

// By the group's stream, so that whoever looks after the group's calls looks after these, too.
Work DeviceFindings::reduce(ProcessGroup& group, const char* operation, bool reduces, bool fetches) {
  if (fetches && !pinned_) pinned_ = runtime(flags_.device()).allocate_pinned(flags_.bytes());
  return group.run({.operation = operation,
                    .tensor = flags_,
                    .op = Reduce::max,
                    .run =
                        [reduces, fetches, flags = flags_, to = pinned_](Transport& transport) mutable {
                          if (reduces && transport.size() > 1) transport.all_reduce(flags, Reduce::max);
                          if (fetches)
                            runtime(flags.device()).copy_to_pinned(to.data(), flags.raw(), flags.bytes());
                        },
                    .agreed = true},
                   "verdict");
}

DeviceFindings::Report DeviceFindings::read() const {
  fetched_.wait();
  fetched_.left().wait();
  const auto* const flags = reinterpret_cast<const std::int32_t*>(pinned_.data());
  Report report{.findings = std::vector<Finding>(static_cast<std::size_t>(size_)), .loss_finite = {}};
  bool explained = false;
  for (int rank = 0; rank < size_; ++rank) {
    report.loss_finite.push_back(flags[loss_index(rank)] == 0);
    for (int bucket = buckets_; bucket-- > 0;) {  // The first one is what stays.
      const bool own = flags[index(rank, bucket, 0)] != 0, sent = flags[index(rank, bucket, 1)] != 0;
      if (!own && !sent) continue;
      explained = true;
      report.findings[static_cast<std::size_t>(rank)] = {
          own ? Finding::Kind::not_finite : Finding::Kind::overflow, -1, bucket};
    }
  }
  for (const bool finite : report.loss_finite) explained = explained || !finite;
  if (!explained && flags[flags_.numel() - 1] != 0)
    report.findings.front() = {Finding::Kind::mean_not_finite, -1, -1};
  return report;
}

bool DeviceFindings::Report::any() const {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& f) { return f.kind != Finding::Kind::none; }) ||
         std::find(loss_finite.begin(), loss_finite.end(), false) != loss_finite.end();
}

void DeviceFindings::Report::locate(const BucketPlan& plan, const optim::FlatParameters& parameters) {
  for (Finding& finding : findings) {
    if (finding.kind == Finding::Kind::none) continue;
    const auto wanted = finding.bucket;  // -1: any.
    for (std::size_t b = 0; b < plan.buckets.size() && finding.position < 0; ++b) {
      if (wanted >= 0 && wanted != static_cast<std::int64_t>(b)) continue;
      const optim::Range range = plan.buckets[b].range;
      for (int i = range.begin; i < range.end && finding.position < 0; ++i)
        if (!all_finite(parameters.gradients({i, i + 1})))
          finding.position = i, finding.bucket = static_cast<std::int64_t>(b);
    }
    if (finding.position >= 0) continue;
    // Somebody has written to them since.
    finding.bucket = std::max<std::int64_t>(finding.bucket, 0);
    finding.position = plan.buckets[static_cast<std::size_t>(finding.bucket)].range.begin;
  }
}

}  // namespace brigade::dist
