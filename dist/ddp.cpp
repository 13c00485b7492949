// SPDX-License-Identifier: MIT
// dist/ddp.cpp - the observer that turns a backward into collectives.
// Long because a step, captured or not, is one story.
// Read before: dist/ddp.h, dist/strategies/bucketed.cpp. Read next: dist/roll_call.cpp, dist/process_group.h.
#include "dist/ddp.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "core/checksum.h"
#include "core/fault_point.h"
#include "core/graph.h"
#include "dist/doctor.h"
#include "dist/label_bit.h"
#include "dist/roll_call.h"
#include "kernels/ops.h"
#include "nn/optim/clip.h"

namespace brigade::dist {
class Ddp::Impl final : public BackwardObserver {
 public:
  Impl(std::vector<nn::NamedParameter> all, std::vector<nn::NamedBuffer> buffer_list,
       ProcessGroup& process_group, const DdpOptions& ddp_options)
      : group(process_group), options(ddp_options), buffers(std::move(buffer_list)) {
    report("wrapping the model");
    fault_point(FaultAt::wrapping);
    const Strategy& chosen = strategy(options.strategy);
    BRIGADE_CHECK(!all.empty(), "ddp: the model has no parameters");
    BRIGADE_CHECK(options.check_every >= 0, "ddp: check_every must not be negative; got ",
                  options.check_every);
    BRIGADE_CHECK(options.clip_norm >= 0, "ddp: clip_norm must not be negative; got ", options.clip_norm);
    for (const auto& p : all)
      BRIGADE_CHECK(!p.variable.has_observer(), "ddp: parameter \"", p.name,
                    "\" belongs to another Ddp already; wrap a model once");
    check_same_model(group, all, buffers);

    std::vector<nn::NamedParameter> trainable;
    for (const auto& p : all) (p.variable.requires_grad() ? trainable : frozen).push_back(p);
    BRIGADE_CHECK(!trainable.empty(), "ddp: all parameters are frozen");
    for (const auto& p : trainable)
      infos.push_back({p.name, p.variable.value().bytes(), p.variable.dtype(), p.variable.dims()});
    make_sync = chosen.make;
    plan = chosen.plan(infos, options.plan);
    check_plan(plan, infos);
    device = trainable.front().variable.value().device();
    BRIGADE_CHECK(device == Device{} || device == group.device(),
                  "ddp: parameters must lie on the group's device, ", group.device(), "; got ", device);
    optim::FlatParameters::MakeMemory shared;
    if (device == Device{}) shared = [&](std::int64_t bytes) { return group.allocate_shared(bytes); };
    parameters = std::make_shared<optim::FlatParameters>(trainable, plan.order, shared);
    ledger.set_device(device);
    hook = make_comm_hook(options.hook, *parameters, options.hook_options);
    use_plan();
    if (chosen.plans_by_rule && plan_rule(options.plan.rule).replans)
      replanner.emplace(group, infos, options.replan);
    broadcast_initial_state();
    report("between steps");
  }

  // Buckets are ranges of flat memory that stays where it is: a new plan costs a few views.
  void use_plan() {
    reducer = std::make_unique<BucketReducer>(
        group, parameters, plan, hook, ledger,
        ReducerOptions{.look_for_non_finite = options.non_finite != NonFinite::ignore,
                       .norms = options.clip_norm > 0});
    sync = make_sync(*reducer);
    texts = std::make_shared<const RollCallTexts>(describe_calls(headline(), plan, *parameters));
  }

  // All that must be the same on every rank beside the buckets.
  std::string headline() const {
    const HookOptions& h = options.hook_options;
    return str("strategy ", options.strategy, ", plan ", options.plan.rule, ", plan epoch ", plan_epoch,
               ", comm hook ", options.hook, " (divide ", static_cast<int>(h.divide), ", rank ", h.rank,
               ", fraction ", h.fraction, ", seed ", h.seed, "), unused ", static_cast<int>(options.unused),
               ", non-finite ", static_cast<int>(options.non_finite), ", clip norm ", options.clip_norm,
               ", checks every ", options.check_every, " steps");
  }

  void broadcast_initial_state() {
    std::vector<Work> works;
    for (const auto& [range, dtype] : parameters->dtype_runs())
      works.push_back(group.broadcast(parameters->values(range), 0, str("initial parameters, ", dtype)));
    for (const auto& p : frozen) works.push_back(group.broadcast(p.variable.value(), 0, p.name));
    for (const Work& work : works) work.wait();
    dist::sync_buffers(buffers, BufferPolicy::broadcast, group);
  }

  // BackwardObserver

  void before_backward(const BackwardStart& start) override {
    syncing = no_sync_depth == 0 && (start.label & label.bit()) == 0;
    judge_last();
    if (std::exchange(unfinished, false)) reducer->drain();
    if (!syncing) return note_micro_step(start.root);
    check_memory(*parameters);
    std::vector<bool> awaited(static_cast<std::size_t>(parameters->count()));
    for (const Variable& leaf : start.reached) awaited[static_cast<std::size_t>(position(leaf))] = true;
    refuse_replaced(*parameters, start.unobserved, awaited);

    const Tensor earlier = holds_gradients() ? micro_losses : Tensor();
    micro_losses = {};
    const bool finite =
        loss_is_finite(start.root) && (!earlier.defined() || loss_is_finite(Variable(earlier)));
    RollCallEntry entry{.loss_finite = finite, .weight = weight};
    // Gradients that are present from earlier micro-steps count as used too.
    entry.used = awaited;
    for (int i = 0; i < parameters->count(); ++i)
      if (parameters->at(i).variable.grad().defined()) entry.used[static_cast<std::size_t>(i)] = true;
    const std::vector<bool> used = entry.used;
    begin(std::move(entry));
    if (is_capturing(device)) captured = Captured{.used = used};
    if (const auto& looks = reducer->device_findings()) {
      if (is_floating(start.root.dtype())) looks->look_at_loss(start.root.value());
      if (earlier.defined()) looks->look_at_loss(earlier);
    }
    for (int i = 0; i < parameters->count(); ++i)
      if (!awaited[static_cast<std::size_t>(i)]) reducer->mark_ready(i);
    sync->begin();
  }

  // Of a backward whose gradients do not travel until a later one.
  void note_micro_step(const Variable& loss) {
    if (!holds_gradients()) micro_losses = {};  // Those of micro-steps before were dropped.
    if (!is_floating(loss.dtype())) return;
    const Tensor sum = ops::reduce(Reduction::sum, ops::cast(loss.value(), DType::f64));
    if (micro_losses.defined())
      ops::add_(micro_losses, sum);
    else
      micro_losses = sum;
  }

  bool holds_gradients() const {
    for (int i = 0; i < parameters->count(); ++i)
      if (parameters->at(i).variable.grad().defined()) return true;
    return false;
  }

  void grad_ready(const Variable& leaf) override {
    if (!syncing) return;
    reducer->mark_ready(position(leaf));
    report("backward");
    sync->on_grad_ready();
  }

  void after_backward() override {
    if (!syncing) return;
    ledger.current().backward.end = Clock::now();
    if (device != Device{})
      ledger.stamp([](StepRecord& record, Clock::time_point time) { record.backward.end = time; });
    const TimedScope waiting(SpanKind::other);
    report("waiting for buckets");
    roll_call->wait();
    sync->finish();
    const std::vector<Finding> findings = reducer->finish();
    end();
    // On a device there are no findings yet, but a flag in its memory.
    const auto& looks = reducer->device_findings();
    parameters->set_skip(looks ? looks->skip() : Tensor());
    undecided = is_capturing(device) ? nullptr : looks;
    judge(findings);
    if (options.clip_norm > 0) {
      if (device != Device{})
        grad_squares = optim::clip_on_device(*parameters, options.clip_norm);
      else if (!step_skipped)
        clip();
    }
    if (is_capturing(device)) {
      BRIGADE_CHECK(roll_call->scale(group.rank()) == 1,
                    "ddp: a step is captured in which ranks have different weights; they must count alike");
      captured->findings = looks;
      captured->grad_squares = grad_squares;
    }
    if (replanner) replanner->after_step(ledger.newest(), ledger.last().step, plan);
    report("between steps");
  }

  // See the header.

  void prepare_capture() {
    const std::string why = device == Device{} ? "they are on the CPU" : group.why_not_captured();
    BRIGADE_CHECK(why.empty(), "ddp: steps on these parameters cannot be captured: ", why);
    BRIGADE_CHECK(
        options.buffers != BufferPolicy::sync_bn,
        "ddp: steps with synchronised batch norm cannot be captured: the host waits for its counts; "
        "use another buffer policy");
    judge_last();
    if (std::exchange(unfinished, false)) reducer->drain();
    ledger.settle();
    replanner.reset();
    if (!repeated_texts)
      repeated_texts = std::make_shared<const RollCallTexts>(
          describe_calls(headline() + ", repeated by the device", plan, *parameters));
  }

  void launched() {
    BRIGADE_CHECK(captured, "ddp: no backward was captured");
    grad_squares = captured->grad_squares;
    undecided = captured->findings;
    if (undecided) return undecided->fetch(group);
    // Nobody reads anything, but whoever looks after the group's calls must know of this one.
    const Tensor values = parameters->at(0).variable.value();
    static_cast<void>(
        group.run({.operation = "repeat", .tensor = values, .run = [](Transport&) {}, .agreed = true},
                  "a captured step"));
  }

  void repeat(const std::function<void()>& launch) {
    BRIGADE_CHECK(captured, "ddp: no backward was captured");
    judge_last();
    check_memory(*parameters);
    open_step({.weight = weight, .used = captured->used}, repeated_texts);
    report("backward");
    fault_point(FaultAt::backward);
    launch();
    ledger.current().backward.end = Clock::now();
    ledger.stamp([](StepRecord& record, Clock::time_point time) { record.backward.end = time; });
    roll_call->wait();
    end();
    BRIGADE_CHECK(roll_call->scale(group.rank()) == 1,
                  "ddp: ranks have different weights in a step that is repeated as it was captured");
    launched();
    judge({});
    report("between steps");
  }

  // The same without a batch of our own.
  bool backward_without_batch() {
    BRIGADE_CHECK(
        options.buffers != BufferPolicy::sync_bn,
        "ddp: a rank without a batch cannot take part in synchronised batch norm, which needs every rank in "
        "every forward; use another buffer policy, or give all ranks the same number of batches");
    for (int i = 0; i < parameters->count(); ++i)
      BRIGADE_CHECK(
          !parameters->at(i).variable.grad().defined(), "ddp: parameter \"", parameters->at(i).name,
          "\" has a gradient that would be lost in a backward without a batch; call zero_grad() first");
    judge_last();
    if (std::exchange(unfinished, false)) reducer->drain();
    check_memory(*parameters);
    begin({.active = false,
           .weight = 0,
           .used = std::vector<bool>(static_cast<std::size_t>(parameters->count()))});
    roll_call->wait();
    if (roll_call->active() == 0) {
      end();
      report("between steps");
      return false;
    }
    for (int i = 0; i < parameters->count(); ++i) reducer->mark_ready(i);
    sync->begin();
    syncing = true;
    after_backward();
    return true;
  }

  void begin(RollCallEntry entry) {
    open_step(std::move(entry), texts);
    reducer->begin(roll_call);
    report("backward");
    fault_point(FaultAt::backward);
  }

  // Opens a step on every rank: its record, its plan, its roll call.
  void open_step(RollCallEntry entry, const std::shared_ptr<const RollCallTexts>& what) {
    unfinished = true;
    if (replanner) {
      if (auto next = replanner->before_step(plan)) {
        plan = std::move(*next);
        ++plan_epoch;
        use_plan();  // Nothing is under way: the last backward waited for all buckets.
      }
    }
    StepRecord& record = ledger.begin_step();
    record.plan_epoch = plan_epoch;
    record.backward.begin = record.backward.end = Clock::now();
    if (device != Device{})
      ledger.stamp([](StepRecord& to, Clock::time_point time) { to.backward.begin = time; });
    group.begin_step(record.step);
    entry.step = record.step;
    entry.calls = what->fingerprint;
    entry.wishes = std::exchange(wishes, 0);
    for (int i = 0; i < parameters->count(); ++i)
      entry.frozen.push_back(!parameters->at(i).variable.requires_grad());
    std::vector<std::uint64_t> sums;
    // Not in a capture: the device would have to be waited for.
    if (options.check_every > 0 && record.step % options.check_every == 0 && group.size() > 1 &&
        !is_capturing(device)) {
      sums = parameter_sums(*parameters);
      entry.sums = checksum(std::as_bytes(std::span(sums))) | 1;  // 0 means not compared.
    }
    roll_call = std::make_shared<RollCall>(group, entry, what, std::move(sums));
  }

  void end() {
    unfinished = false;
    ledger.current().control = {roll_call->times().start, roll_call->times().end};
    ledger.current().control_bytes = roll_call->bytes();
  }

  int position(const Variable& leaf) const {
    const int found = parameters->position_of(leaf);
    if (found >= 0) return found;
    for (const auto& p : frozen)
      BRIGADE_CHECK(!(p.variable == leaf), "ddp: parameter \"", p.name,
                    "\" was frozen when the model was wrapped and requires a gradient now; wrap again after "
                    "unfreezing");
    fail("ddp: backward reached a parameter that is not ours");
  }

  // What a device has found in the step before, of which no parameter has changed then. Before anything writes to the
  // gradients again: the mean still says which of them it was.
  void judge_last() {
    if (!undecided) return;
    DeviceFindings::Report report = std::exchange(undecided, nullptr)->read();
    step_skipped = report.any() && options.non_finite == NonFinite::skip;
    if (step_skipped) parameters->note_skipped_update();
    if (!report.any()) return;
    report.locate(plan, *parameters);
    drop_step(describe_findings(report.findings, report.loss_finite, *parameters, options.hook));
  }

  // Skips the newest step, or fails.
  void drop_step(const std::string& found) {
    if (!step_skipped) fail(str("ddp: step ", ledger.last().step + 1, ": ", found, "; nothing was updated"));
    last_skipped_step = ledger.last().step + 1;
    skip_reason = found;
  }

  // All ranks have the same findings and the same roll call: they throw, skip or go on alike.
  void judge(const std::vector<Finding>& findings) {
    std::vector<bool> loss_finite;
    for (const RollCallEntry& entry : roll_call->entries()) loss_finite.push_back(entry.loss_finite);
    const std::string found = options.non_finite == NonFinite::ignore || device != Device{}
                                  ? ""
                                  : describe_findings(findings, loss_finite, *parameters, options.hook);
    if (device == Device{}) step_skipped = !found.empty() && options.non_finite == NonFinite::skip;
    if (!found.empty()) drop_step(found);
    const bool no_gradients = device == Device{} && step_skipped;
    for (int i = 0; i < parameters->count(); ++i) {
      Variable variable = parameters->at(i).variable;
      variable.set_grad_present(!no_gradients && roll_call->users(i) > 0);
    }
    const std::string half_frozen = describe_half_frozen(*roll_call, *parameters);
    if (!half_frozen.empty())
      fail(str("ddp: frozen on some ranks only: ", half_frozen, "; freeze on all ranks or on none"));
    if (options.unused == UnusedParameters::zero) return;
    const std::string idle = describe_unused(*roll_call, *parameters);
    if (!idle.empty())
      fail(str("ddp: ", idle, "; use UnusedParameters::zero (--find-unused) if that is meant"));
  }

  // With the sums that the communication stream has taken already.
  void clip() {
    double squares = 0;
    for (const int i : parameters->in_registration_order())
      squares += reducer->squares()[static_cast<std::size_t>(i)];
    norm = std::sqrt(squares) / parameters->grad_scale();
    optim::scale_to_norm(*parameters, norm, options.clip_norm);
  }

  // What peers that wait for this rank will read.
  void report(const char* phase) {
    Progress progress;
    std::strncpy(progress.phase, phase, sizeof progress.phase - 1);
    if (reducer && !ledger.steps().empty()) {
      progress.step = ledger.last().step + 1;
      progress.pending = unfinished ? reducer->pending() : 0;
      progress.gradients = parameters->count();
      if (progress.pending > 0)
        std::strncpy(progress.first_pending, parameters->at(reducer->first_pending()).name.c_str(),
                     sizeof progress.first_pending - 1);
    }
    group.report(progress);
  }

  ProcessGroup& group;
  const DdpOptions options;
  std::vector<nn::NamedBuffer> buffers;
  std::vector<nn::NamedParameter> frozen;  // When the model was wrapped.
  std::vector<ParameterInfo> infos;
  Device device;  // Of the parameters.
  BucketPlan plan;
  std::int64_t plan_epoch = 0;
  std::shared_ptr<const RollCallTexts> texts;  // What a backward calls.
  Ledger ledger;
  std::shared_ptr<optim::FlatParameters> parameters;
  std::shared_ptr<CommHook> hook;
  std::unique_ptr<BucketReducer> reducer;
  std::unique_ptr<GradSync> (*make_sync)(BucketReducer& reducer) = nullptr;
  std::unique_ptr<GradSync> sync;
  std::optional<Replanner> replanner;
  const LabelBit label;
  int no_sync_depth = 0;
  double weight = 1;
  std::uint64_t wishes = 0;  // Of this rank, not yet told.

  // Of the backward that runs, or of the last one.
  bool syncing = false;
  bool unfinished = false;  // Stays true if an exception ends it with buckets under way.
  bool step_skipped = false;
  std::int64_t last_skipped_step = 0;
  std::string skip_reason;
  Tensor micro_losses;  // Sum, f64, of the backwards under no_sync() whose gradients are still here.
  std::shared_ptr<DeviceFindings> undecided;  // Of the last backward on a device.
  double norm = 0;
  Tensor grad_squares;  // Of a device, in place of norm.
  // What a captured backward has left, for its repetitions.
  struct Captured {
    std::vector<bool> used;
    std::shared_ptr<DeviceFindings> findings = {};
    Tensor grad_squares = {};
  };
  std::optional<Captured> captured;
  std::shared_ptr<const RollCallTexts> repeated_texts;
  std::shared_ptr<RollCall> roll_call;
};

Ddp::Ddp(std::vector<nn::NamedParameter> parameters, std::vector<nn::NamedBuffer> buffers,
         ProcessGroup& group, DdpOptions options)
    : impl_(std::make_shared<Impl>(parameters, std::move(buffers), group, options)) {
  for (auto& p : parameters) p.variable.set_observer(impl_);
}

Ddp::~Ddp() = default;

optim::FlatParameters& Ddp::parameters() { return *impl_->parameters; }
const BucketPlan& Ddp::plan() const { return impl_->plan; }
std::optional<PlanChange> Ddp::last_plan_change() const {
  return impl_->replanner ? impl_->replanner->last_change() : std::nullopt;
}
const std::vector<ParameterInfo>& Ddp::parameter_infos() const { return impl_->infos; }
const Ledger& Ddp::ledger() const { return impl_->ledger; }
Ledger& Ddp::ledger() { return impl_->ledger; }
const std::string& Ddp::bucket_label(int bucket) const {
  BRIGADE_CHECK(bucket >= 0 && bucket < impl_->reducer->bucket_count(), "ddp: there is no bucket ", bucket);
  return impl_->reducer->label(bucket);
}
ProcessGroup& Ddp::group() const { return impl_->group; }
GradientMemory Ddp::gradient_memory() const {
  std::vector<Tensor> gradients, buckets;
  for (int i = 0; i < impl_->parameters->count(); ++i)
    gradients.push_back(impl_->parameters->at(i).variable.grad_memory());
  for (int b = 0; b < impl_->reducer->bucket_count(); ++b) buckets.push_back(impl_->reducer->memory(b));
  return dist::gradient_memory(gradients, buckets);
}
void Ddp::prepare_capture() { impl_->prepare_capture(); }
void Ddp::launched() { impl_->launched(); }
void Ddp::repeat(const std::function<void()>& launch) { impl_->repeat(launch); }
NamedTensors Ddp::hook_state() { return impl_->hook->state(*impl_->parameters); }
void Ddp::start_at(std::int64_t step) { impl_->ledger.start_at(step); }
void Ddp::settle() { impl_->judge_last(); }
void Ddp::sync_buffers() {
  impl_->judge_last();
  dist::sync_buffers(impl_->buffers, impl_->options.buffers, impl_->group);
}

void Ddp::set_weight(double weight) {
  BRIGADE_CHECK(std::isfinite(weight) && weight >= 0, "ddp: a weight must be finite and not negative; got ",
                weight);
  impl_->weight = weight;
}
bool Ddp::backward_without_batch() { return impl_->backward_without_batch(); }
void Ddp::propose(Decision decision) { impl_->wishes |= static_cast<std::uint64_t>(decision); }
bool Ddp::agreed(Decision decision) const {
  return impl_->roll_call && impl_->roll_call->wished(static_cast<std::uint64_t>(decision));
}
bool Ddp::skipped() const { return impl_->step_skipped; }
std::int64_t Ddp::last_skipped_step() const { return impl_->last_skipped_step; }
const std::string& Ddp::skip_reason() const { return impl_->skip_reason; }
double Ddp::grad_norm() const {
  BRIGADE_CHECK(impl_->options.clip_norm > 0, "ddp: grad_norm is taken only if clip_norm is set");
  return impl_->grad_squares.defined() ? std::sqrt(impl_->grad_squares.item()) : impl_->norm;
}
Tensor Ddp::grad_squares() const { return impl_->grad_squares; }

Ddp::NoSync::NoSync(std::shared_ptr<Impl> impl) : impl_(std::move(impl)), label_(impl_->label.bit()) {
  ++impl_->no_sync_depth;
}
Ddp::NoSync::~NoSync() { --impl_->no_sync_depth; }

}  // namespace brigade::dist
