// SPDX-License-Identifier: MIT
// tests/support/bare_ddp.h - the glue between a backward and the buckets as dist/ddp.cpp has it, with nothing around it
// and every part exchangeable: for schedules without a model, and for mutants of the synchronisation.
// Read before: dist/bucket_reducer.h, dist/grad_sync.h, dist/ddp.cpp.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "autograd/variable.h"
#include "dist/comm_hook.h"
#include "dist/grad_sync.h"

namespace brigade::test {

struct BareParts {
  std::function<std::unique_ptr<dist::GradSync>(dist::BucketReducer&)> sync;
  /// Empty: the hook "none".
  std::function<std::unique_ptr<dist::CommHook>(const optim::FlatParameters&)> hook = {};
  dist::ReducerOptions reducer = {};
};

/// One rank. Gradients come from a backward, if it observes a model's parameters, or from whoever writes them by hand.
class BareDdp : public BackwardObserver {
 public:
  BareDdp(dist::ProcessGroup& group, std::vector<nn::NamedParameter> parameters, dist::BucketPlan plan,
          BareParts parts);

  /// A step begins in which the positions with used[position] will become ready.
  virtual void begin(const std::vector<bool>& used, double weight = 1);
  /// The gradient at `position` is in place.
  virtual void ready(int position);
  /// All are: waits until the means are in place.
  virtual void finish();

  optim::FlatParameters& parameters() { return *parameters_; }
  dist::BucketReducer& reducer() { return *reducer_; }
  const dist::Ledger& ledger() const { return ledger_; }
  const dist::BucketPlan& plan() const { return plan_; }

 protected:
  void use_plan(dist::BucketPlan plan);
  virtual void wait() { reducer_->finish(); }

  dist::ProcessGroup& group_;
  std::shared_ptr<optim::FlatParameters> parameters_;
  dist::BucketPlan plan_;
  BareParts parts_;
  std::shared_ptr<dist::CommHook> hook_;
  dist::Ledger ledger_{16};
  std::unique_ptr<dist::BucketReducer> reducer_;
  std::unique_ptr<dist::GradSync> sync_;
  std::shared_ptr<const dist::RollCallTexts> texts_;
  std::shared_ptr<dist::RollCall> roll_call_;

 private:
  void before_backward(const BackwardStart& start) override;
  void grad_ready(const Variable& leaf) override { ready(parameters_->position_of(leaf)); }
  void after_backward() override { finish(); }
};

/// Parameters called "p0", "p1", … of so many f32 elements each, zero.
std::vector<nn::NamedParameter> bare_parameters(const std::vector<std::int64_t>& sizes);
std::vector<dist::ParameterInfo> bare_infos(const std::vector<nn::NamedParameter>& parameters);

}  // namespace brigade::test
