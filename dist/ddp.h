// SPDX-License-Identifier: MIT
// dist/ddp.h - distributed data parallelism over any set of parameters: the piece that
// joins engine, buckets and ranks.
//
//   Ddp ddp(model.named_parameters(), model.named_buffers(), group);
//   Sgd optimizer(ddp.parameters(), …);
//   …
//   ddp.parameters().zero_grad();
//   backward(loss(model(x)));  // gradients travel from inside this call and are means when it returns
//   optimizer.step();
//
// Read before: autograd/variable.h (BackwardObserver), dist/grad_sync.h.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/no_grad.h"
#include "dist/grad_sync.h"
#include "dist/replanner.h"

namespace brigade::dist {

/// What happens when a parameter takes no part in the loss on some rank. Either way all ranks know, by one small
/// collective that rides along with backward.
///
/// error  All ranks throw the same Error at the end of that backward, naming the parameters and how many
///        ranks used them.
/// zero   It counts as zero on ranks that did not use it; if no rank did, it has no gradient and is not updated.
enum class UnusedParameters : std::uint8_t { error, zero };

struct DdpOptions {
  std::string strategy = "bucketed";
  PlanOptions plan = {};
  ReplanOptions replan = {};  ///< Used if plan.rule is one that re-plans ("auto").
  UnusedParameters unused = UnusedParameters::error;
};

/// Averages gradients over the ranks of a group at each backward that reaches its parameters.
///
/// Construction compares parameters and buffers (count, names, shapes, dtypes, trainability) across ranks, moves the
/// parameters into flat memory in the plan's order, and broadcasts values and buffers from rank 0. Blocks; throws Error
/// naming the first difference on every rank.
///
/// A parameter used several times is reduced once, after its last use. Several forwards before one backward are fine.
/// Throws CommError out of backward() when a peer is lost. Another exception in the middle of backward leaves buckets
/// under way; the next backward waits for them first.
class Ddp {
  class Impl;

 public:
  Ddp(std::vector<nn::NamedParameter> parameters, std::vector<nn::NamedBuffer> buffers, ProcessGroup& group,
      DdpOptions options = {});
  ~Ddp();
  Ddp(const Ddp&) = delete;
  Ddp& operator=(const Ddp&) = delete;

  optim::FlatParameters& parameters();
  const BucketPlan& plan() const;  ///< The one in use; changes between steps if re-planning is on.
  /// What the planner last decided; on rank 0 only, empty before its first change.
  std::optional<PlanChange> last_plan_change() const;
  const std::vector<ParameterInfo>& parameter_infos() const;  ///< In the plan's index order.
  const Ledger& ledger() const;
  ProcessGroup& group() const;

  /// In its scope gradients accumulate locally. A micro-step is local if its forward, its backward or both stand in the
  /// scope; the first backward outside synchronises the accumulated sum, once. A loss that joins forwards from inside
  /// and from outside counts as outside.
  class NoSync {
   public:
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    friend class Ddp;
    explicit NoSync(std::shared_ptr<Impl> impl);
    std::shared_ptr<Impl> impl_;  // The scope may end after the Ddp.
    GraphLabel label_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(impl_); }

  /// Gives every rank rank 0's buffers (batch norm's running statistics), which ranks otherwise keep for
  /// themselves: call before evaluation or saving. Collective; blocks.
  void broadcast_buffers();

 private:
  std::shared_ptr<Impl> impl_;  // Shared with the parameters' observer slots only while alive.
};

}  // namespace brigade::dist
