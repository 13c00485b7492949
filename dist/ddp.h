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

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/no_grad.h"
#include "dist/buffer_sync.h"
#include "dist/comm_hook.h"
#include "dist/grad_sync.h"
#include "dist/gradient_memory.h"
#include "dist/replanner.h"

namespace brigade::dist {

/// What happens when a parameter takes no part in the loss on some rank. Either way all ranks know, by the roll call
/// that rides along with backward.
///
/// error  All ranks throw the same Error at the end of that backward, naming the parameters and how many
///        ranks used them.
/// zero   It counts as zero on ranks that did not use it; if no rank did, it has no gradient and is not updated.
enum class UnusedParameters : std::uint8_t { error, zero };

/// What happens when a rank's own loss or gradient is infinite or NaN, or does not fit the type that a hook sends. All
/// ranks know before any of them can update a parameter.
///
/// error   All ranks throw the same Error out of that backward, naming rank, step, parameter and bucket.
/// skip    All ranks end the backward without any gradient, so that an optimizer changes nothing; see skipped().
/// ignore  Nobody looks.
///
/// A mean is looked at where scaling or rounding could make it infinite (weights, 16-bit gradients); that of plain f32
/// gradients is not: their sum would have to pass 3e38.
///
/// On a device the gradients are looked at there, and every mean with them. It is the device that keeps optimizers from
/// changing anything then (FlatParameters::set_skip()); the host learns of it when the next backward begins, or in
/// sync_buffers(), and throws there, or tells optimizers not to have counted the update.
enum class NonFinite : std::uint8_t { error, skip, ignore };

/// What one rank may want and all ranks then do together: see Ddp::propose().
/// saving is no wish but word that this rank's files are still being written: dist/checkpoint/checkpoint_writer.h.
/// interrupted goes with stop: the reason was SIGINT.
enum class Decision : std::uint64_t { stop = 1, save = 2, gather_ledger = 4, saving = 8, interrupted = 16 };

struct DdpOptions {
  std::string strategy = "bucketed";
  PlanOptions plan = {};
  ReplanOptions replan = {};      ///< Used if plan.rule is one that re-plans ("auto").
  std::string hook = "none";      ///< What travels: a name of comm_hooks().
  HookOptions hook_options = {};  ///< Where to divide, among others.
  UnusedParameters unused = UnusedParameters::error;
  NonFinite non_finite = NonFinite::error;
  /// What sync_buffers() does. sync_bn also needs layers that combine their statistics: nn::set_statistics_combiner.
  BufferPolicy buffers = BufferPolicy::broadcast;
  /// Scale the mean gradient down to this global norm; 0: off. Bucket by bucket, norms are taken on the communication
  /// stream while later buckets are still computed. The result equals optim::clip_grad_norm(). On a device norm and
  /// factor stay there: gradients remain as they are, and optimizers multiply them (FlatParameters::control()).
  double clip_norm = 0;
  /// Compare a checksum of all parameters between ranks every so many steps; 0: never.
  std::int64_t check_every = 100;
};

/// Averages gradients over the ranks of a group at each backward that reaches its parameters.
///
/// Construction compares parameters and buffers (count, names, shapes, dtypes, trainability) across ranks, moves the
/// parameters into flat memory in the plan's order, and broadcasts values and buffers from rank 0. Blocks; throws Error
/// naming the first difference on every rank.
///
/// A parameter used several times is reduced once, after its last use. Several forwards before one backward are fine.
/// One frozen later on all ranks is left alone from then on; one unfrozen, frozen on some ranks only, replaced by
/// another or moved elsewhere in memory after construction is refused by name: it would drift apart.
///
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
  Ledger& ledger();  ///< For StepScope and names of layers.
  /// "bucket 2 (layer4.1.conv2.weight + 5 more)", of the present plan.
  const std::string& bucket_label(int bucket) const;
  ProcessGroup& group() const;
  /// Where gradients and the buckets of the present plan lie.
  GradientMemory gradient_memory() const;

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

  // Ranks that do not have the same amount of data.

  /// From the next backward on this rank's gradient counts in proportion to `weight` (finite, not negative): with the
  /// number of samples behind each rank's mean loss, the mean over ranks is exactly that over all samples. Initially 1.
  void set_weight(double weight);
  /// For a rank that has no batch while others may have one: takes part in their backward with weight 0 and ends with
  /// the same gradients, so that it must go on to the optimizer as they do. Returns false, without gradients, when no
  /// rank had a batch: then all are done. Gradients must have been zeroed (Error otherwise). Blocks.
  ///
  ///   while (batch ? (backward(loss(*batch)), true) : ddp.backward_without_batch()) { optimizer.step(); … }
  bool backward_without_batch();

  // Decisions of all ranks. They travel with the roll call of a backward.

  /// This rank wants `decision` to be taken; told to the others in its next synchronised backward.
  void propose(Decision decision);
  /// After a synchronised backward: whether some rank had proposed it, the same answer on every rank.
  bool agreed(Decision decision) const;
  /// After a synchronised backward: all ranks dropped its gradients (NonFinite::skip). On a device: those of the one
  /// before.
  bool skipped() const;
  /// The newest step, counted from 1, whose gradients all ranks are known to have dropped; 0: none.
  std::int64_t last_skipped_step() const;
  /// What was not finite in that step, and where it was seen first: rank, bucket, parameter.
  const std::string& skip_reason() const;
  /// Norm of the mean gradient before clipping, after a synchronised backward; needs DdpOptions::clip_norm. On a
  /// device: blocks until it is there.
  double grad_norm() const;
  /// For who does not want to: its square, one f64 of the device; undefined on the CPU.
  Tensor grad_squares() const;

  // A step that a device repeats by itself (core/graph.h), with plan, weights and parameters of the capture. All ranks
  // capture and repeat the same steps.

  /// Before a capture that a whole backward and the optimizer's update stand in: judges the last backward and settles
  /// the ledger, since nothing can be waited for in the capture. From now on the plan stays what it is. Blocks. Throws
  /// Error where tensors of ranks go through the host: ProcessGroup::why_not_captured().
  void prepare_capture();
  /// The captured backward has been launched for the first time.
  void launched();
  /// In place of a backward: what it does on the host, around launch(), which repeats the captured one on the device.
  /// Waits for the verdict on the step before (but under NonFinite::ignore), and throws, as the next backward does. The
  /// ledger knows of such a step when it begins and ends, but not when its buckets travelled.
  void repeat(const std::function<void()>& launch);

  // Checkpoints.

  /// What the comm hook has kept back on this rank, by name, sharing memory. Not while a backward is under way.
  NamedTensors hook_state();
  /// Steps are counted from `step` on: before the first backward of a run that goes on from a checkpoint.
  void start_at(std::int64_t step);

  /// Learns what a device has found in the last step, as the next backward would do: before state is saved. Blocks;
  /// throws as that. Nothing to do on the CPU.
  void settle();
  /// Settles the buffers (batch norm's running statistics) between ranks by DdpOptions::buffers: call before evaluation
  /// and before saving. Collective; blocks.
  void sync_buffers();

 private:
  std::shared_ptr<Impl> impl_;  // Observed through weak pointers; shared with NoSync scopes.
};

}  // namespace brigade::dist
