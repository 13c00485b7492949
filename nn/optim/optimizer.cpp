// SPDX-License-Identifier: MIT
// nn/optim/optimizer.cpp - what all optimizers share.
#include "nn/optim/optimizer.h"

#include <utility>

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

// A device that skips an update says so a step later.
void Optimizer::begin_step() {
  ++steps_;
  if (std::exchange(skipped_updates_, parameters_->skipped_updates()) != parameters_->skipped_updates())
    for (const Range run : last_updated_)
      for (int i = run.begin; i < run.end; ++i) --updates_.data<std::int64_t>()[i];
  last_updated_.clear();
}

void Optimizer::finish_update(Range run) {
  last_updated_.push_back(run);
  for (int i = run.begin; i < run.end; ++i) {
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
