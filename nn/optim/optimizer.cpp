// SPDX-License-Identifier: MIT
// nn/optim/optimizer.cpp - what all optimizers share.
#include "nn/optim/optimizer.h"

#include <algorithm>
#include <utility>

#include "core/graph.h"
#include "kernels/kernels.h"

namespace brigade::optim {

Optimizer::Optimizer(FlatParameters& parameters, double lr, DecayOn decay)
    : parameters_(&parameters),
      lr_(lr),
      decay_(decay),
      updates_(Tensor::zeros({parameters.count()}, DType::i64)),
      skipped_updates_(parameters.skipped_updates()) {
  BRIGADE_CHECK(lr >= 0, "optimizer: lr must be at least 0; got ", lr);
}

bool Optimizer::decays(int position) const {
  return decay_ == DecayOn::all || parameters_->at(position).variable.dims() >= 2;
}

void Optimizer::begin_step() {
  ++steps_;
  take_back_skipped();
  last_updated_.clear();
  values_ = {static_cast<float>(lr_)};
  pairs_.clear();
  if (mode_ == Mode::repeat) return;
  mode_ = constants_.defined() && is_capturing(constants_.device()) ? Mode::capture : Mode::launch;
}

// A device that skips an update says so a step later.
void Optimizer::take_back_skipped() {
  if (std::exchange(skipped_updates_, parameters_->skipped_updates()) != parameters_->skipped_updates())
    for (const Range run : last_updated_)
      for (int i = run.begin; i < run.end; ++i) --updates_.data<std::int64_t>()[i];
}

void Optimizer::prepare_capture() {
  const Device device = parameters_->at(0).variable.value().device();
  if (!constants_.defined()) constants_ = Tensor::zeros({1 + 2 * parameters_->count()}, DType::f32, device);
  sent_.clear();
}

// A number is an argument of the kernel that writes it: no host memory has to wait for it to have been read.
void Optimizer::send_constants() {
  BRIGADE_CHECK(constants_.defined(), "optimizer: prepare_capture() comes before send_constants()");
  sent_.resize(std::max(sent_.size(), values_.size()), -1);
  for (std::size_t i = 0; i < values_.size(); ++i) {
    if (sent_[i] == values_[i]) continue;
    const auto at = static_cast<std::int64_t>(i);
    Tensor slot = constants_.slice(0, at, at + 1);
    kernels(slot.device()).fill(slot, static_cast<double>(values_[i]));
    sent_[i] = values_[i];
  }
}

void Optimizer::repeat() {
  const TimedScope span(SpanKind::optimizer);
  mode_ = Mode::repeat;
  begin_step();
  update(parameters_->all());
  mode_ = Mode::launch;
  BRIGADE_CHECK(
      last_updated_ == captured_,
      "optimizer: a captured step is repeated, but other parameters have gradients, or another count of "
      "updates, than when it was captured; capture it again");
  send_constants();
}

StepControl Optimizer::control() const {
  StepControl control = parameters_->control();
  if (mode_ == Mode::capture) control.lr = constants_.data<float>();
  return control;
}

StepControl Optimizer::control(std::int64_t updates, float first, float second) {
  StepControl control = this->control();
  if (mode_ == Mode::launch) return control;
  const std::size_t at = pair_of(updates, first, second);
  if (mode_ == Mode::capture) control.bias_corrections = constants_.data<float>() + at;
  return control;
}

// In order of appearance, which is the same in each repetition: the updates of all parameters grow alike.
std::size_t Optimizer::pair_of(std::int64_t updates, float first, float second) {
  const auto found = std::find(pairs_.begin(), pairs_.end(), updates);
  const auto index = static_cast<std::size_t>(found - pairs_.begin());
  if (found == pairs_.end()) {
    pairs_.push_back(updates);
    values_.insert(values_.end(), {first, second});
  }
  return 1 + 2 * index;
}

void Optimizer::finish_update(Range run) {
  last_updated_.push_back(run);
  if (mode_ == Mode::capture) captured_ = last_updated_;
  for (int i = run.begin; i < run.end; ++i) {
    // A first step is another formula, which must not be repeated.
    BRIGADE_CHECK(mode_ != Mode::capture || updates(i) > 0, "optimizer: the first update of \"",
                  parameters_->at(i).name, "\" is captured; do some steps before, none of them skipped");
    ++updates_.data<std::int64_t>()[i];
    parameters_->at(i).variable.value().bump_version();
  }
}

void Optimizer::append_state(NamedTensors& out, const std::string& kind, const FlatBuffer& buffer) const {
  for (const int i : parameters_->in_registration_order())
    out.emplace_back(kind + "." + parameters_->at(i).name, buffer.at(*parameters_, i));
}

void Optimizer::append_updates(NamedTensors& out) const {
  for (const int i : parameters_->in_registration_order())
    out.emplace_back("updates." + parameters_->at(i).name, updates_.select(0, i));
}

}  // namespace brigade::optim
