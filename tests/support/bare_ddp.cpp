// SPDX-License-Identifier: MIT
// tests/support/bare_ddp.cpp - see the header.
#include "tests/support/bare_ddp.h"

#include <utility>

namespace brigade::test {

BareDdp::BareDdp(dist::ProcessGroup& group, std::vector<nn::NamedParameter> parameters, dist::BucketPlan plan,
                 BareParts parts)
    : group_(group), parts_(std::move(parts)) {
  check_plan(plan, bare_infos(parameters));
  parameters_ = std::make_shared<optim::FlatParameters>(std::move(parameters), plan.order);
  hook_ = parts_.hook ? parts_.hook(*parameters_) : dist::make_comm_hook("none", *parameters_);
  use_plan(std::move(plan));
}

void BareDdp::use_plan(dist::BucketPlan plan) {
  plan_ = std::move(plan);
  reducer_ =
      std::make_unique<dist::BucketReducer>(group_, parameters_, plan_, hook_, ledger_, parts_.reducer);
  sync_ = parts_.sync(*reducer_);
  texts_ = std::make_shared<const dist::RollCallTexts>(describe_calls("bare", plan_, *parameters_));
}

void BareDdp::begin(const std::vector<bool>& used, double weight) {
  const std::int64_t step = ledger_.begin_step().step;
  dist::RollCallEntry entry{.step = step, .calls = texts_->fingerprint, .weight = weight, .used = used};
  entry.frozen.resize(used.size());
  roll_call_ = std::make_shared<dist::RollCall>(group_, entry, texts_);
  reducer_->begin(roll_call_);
  for (int i = 0; i < parameters_->count(); ++i)
    if (!used[static_cast<std::size_t>(i)]) reducer_->mark_ready(i);
  sync_->begin();
}

void BareDdp::ready(int position) {
  reducer_->mark_ready(position);
  sync_->on_grad_ready();
}

void BareDdp::finish() {
  roll_call_->wait();
  sync_->finish();
  wait();
  for (int i = 0; i < parameters_->count(); ++i) {
    Variable variable = parameters_->at(i).variable;
    variable.set_grad_present(roll_call_->users(i) > 0);
  }
}

void BareDdp::before_backward(const BackwardStart& start) {
  std::vector<bool> used(static_cast<std::size_t>(parameters_->count()));
  for (const Variable& leaf : start.reached)
    used[static_cast<std::size_t>(parameters_->position_of(leaf))] = true;
  begin(used);
}

std::vector<nn::NamedParameter> bare_parameters(const std::vector<std::int64_t>& sizes) {
  std::vector<nn::NamedParameter> out;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    out.push_back({str("p", i), Variable::parameter(Tensor::zeros({sizes[i]}))});
  return out;
}

std::vector<dist::ParameterInfo> bare_infos(const std::vector<nn::NamedParameter>& parameters) {
  std::vector<dist::ParameterInfo> out;
  for (const auto& p : parameters)
    out.push_back({p.name, p.variable.value().bytes(), p.variable.dtype(), p.variable.dims()});
  return out;
}

}  // namespace brigade::test
