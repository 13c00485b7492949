// SPDX-License-Identifier: MIT
// nn/optim/optimizer.cpp - what all optimizers share.
#include "nn/optim/optimizer.h"

#include <algorithm>

namespace brigade::optim {

Optimizer::Optimizer(FlatParameters& parameters, double lr, DecayOn decay)
    : parameters_(&parameters), lr_(lr), decay_(decay) {
  BRIGADE_CHECK(lr >= 0, "optimizer: lr must be at least 0; got ", lr);
}

bool Optimizer::decays(int position) const {
  return decay_ == DecayOn::all || parameters_->at(position).variable.dims() >= 2;
}

void Optimizer::mark_updated(Range range) const {
  for (int i = range.begin; i < range.end; ++i) parameters_->at(i).variable.value().bump_version();
}

NamedTensors Optimizer::named_state(const std::string& kind, const FlatBuffer& buffer) const {
  std::vector<int> positions(static_cast<std::size_t>(parameters_->count()));
  for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int>(i);
  std::sort(positions.begin(), positions.end(),
            [&](int a, int b) { return parameters_->index_at(a) < parameters_->index_at(b); });
  NamedTensors out;
  for (const int i : positions)
    out.emplace_back(kind + "." + parameters_->at(i).name, buffer.at(*parameters_, i));
  return out;
}

}  // namespace brigade::optim
