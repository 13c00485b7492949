// SPDX-License-Identifier: MIT
// apps/common/captured_step.cpp - see the header.
#include "apps/common/captured_step.h"

#include <utility>

namespace brigade::apps {

std::string why_not_captured(const dist::ProcessGroup& group) {
  if (group.device() == Device{}) return "needs a CUDA device; this run computes on the CPU";
  const std::string why = group.why_not_captured();
  return why.empty() ? "" : str("a captured step needs NCCL or one rank: ", why);
}

CapturedStep::CapturedStep(dist::Ddp& ddp, optim::Optimizer& optimizer, LateChecks& checks)
    : ddp_(ddp), optimizer_(optimizer), checks_(checks), to_device_(ddp.group().device()) {
  const std::string why = why_not_captured(ddp.group());
  BRIGADE_CHECK(why.empty(), "--cuda-graph: ", why);
}

bool CapturedStep::fits(const std::vector<data::Batch>& batches) const {
  bool same = graph_ == nullptr || batches.size() == inputs_.size();
  for (std::size_t i = 0; same && i < batches.size(); ++i) {
    same = !batches[i].uneven;
    if (graph_ == nullptr) continue;
    same = same && batches[i].images.shape() == inputs_[i].images.shape() &&
           batches[i].labels.shape() == inputs_[i].labels.shape();
    if (is_there(batches[i])) same = same && batches[i].images.raw() == inputs_[i].images.raw();
  }
  return same;
}

Tensor CapturedStep::run(const std::vector<data::Batch>& batches, const Step& step) {
  repeated_ = fits(batches) && steps_++ >= kWarmUp;
  if (!repeated_) {
    std::vector<data::Batch> there;
    for (const data::Batch& batch : batches) there.push_back(to_device_(batch));
    return step(there);
  }
  inputs_.resize(batches.size());
  for (std::size_t i = 0; i < batches.size(); ++i)
    if (is_there(batches[i]))
      inputs_[i] = batches[i];
    else
      to_device_.copy(batches[i], inputs_[i]);
  checks_.judge();
  if (graph_ == nullptr) {
    record(step);
    optimizer_.send_constants();
    launch();
    ddp_.launched();
  } else {
    ddp_.repeat([this] {
      optimizer_.repeat();
      launch();
    });
  }
  return loss_;
}

void CapturedStep::record(const Step& step) {
  ddp_.prepare_capture();
  optimizer_.prepare_capture();
  // What steps needed so far is of no use to the graph, which has memory of its own.
  runtime(ddp_.group().device()).trim();
  graph_ = capture(ddp_.group().device(), [&] { loss_ = step(inputs_); });
  found_ = checks_.take();
}

void CapturedStep::launch() {
  graph_->launch();
  for (const LateChecks::Check& check : found_) checks_.add(check);
  checks_.fetch();
}

}  // namespace brigade::apps
