// SPDX-License-Identifier: MIT
// dist/ddp.cpp - the observer that turns a backward into collectives.
// Read before: dist/ddp.h, dist/strategies/bucketed.cpp. Read next: dist/process_group.h.
#include "dist/ddp.h"

#include <atomic>
#include <utility>

#include "kernels/ops.h"

namespace brigade::dist {
namespace {

// A bit of the graph label, so that no_sync of one model leaves another alone (of the 64 youngest in this process).
std::uint64_t unique_label() {
  static std::atomic<unsigned> next{0};
  return std::uint64_t{1} << (next++ % 64);
}

// One line a parameter and buffer: what must agree between ranks.
std::string signature(const std::vector<nn::NamedParameter>& parameters,
                      const std::vector<nn::NamedBuffer>& buffers) {
  std::string out;
  for (const auto& p : parameters)
    out +=
        str("parameter ", p.name, " ", p.variable.value(), p.variable.requires_grad() ? "" : " frozen", "\n");
  for (const auto& b : buffers) out += str("buffer ", b.name, " ", b.tensor, "\n");
  return out;
}

// Line `index` of `text`, or "nothing" behind its end.
std::string line_at(const std::string& text, std::size_t index) {
  std::size_t begin = 0;
  for (; index > 0 && begin < text.size(); --index) begin = text.find('\n', begin) + 1;
  return begin < text.size() ? text.substr(begin, text.find('\n', begin) - begin) : "nothing";
}

void check_same_model(ProcessGroup& group, const std::string& mine) {
  const std::vector<std::string> all = group.all_gather_text(mine);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    std::size_t index = 0;
    while (line_at(all[rank], index) == line_at(all[0], index)) ++index;
    fail(str("ddp: ranks built different models; first difference at index ", index, ": rank 0 has ",
             line_at(all[0], index), ", rank ", rank, " has ", line_at(all[rank], index)));
  }
}

}  // namespace

class Ddp::Impl final : public BackwardObserver {
 public:
  Impl(std::vector<nn::NamedParameter> all, std::vector<nn::NamedBuffer> buffer_list,
       ProcessGroup& process_group, const DdpOptions& options)
      : group(process_group), unused(options.unused), buffers(std::move(buffer_list)), label(unique_label()) {
    const Strategy& chosen = strategy(options.strategy);
    BRIGADE_CHECK(!all.empty(), "ddp: the model has no parameters");
    for (const auto& p : all)
      BRIGADE_CHECK(!p.variable.has_observer(), "ddp: parameter \"", p.name,
                    "\" belongs to another Ddp already; wrap a model once");
    check_same_model(group, signature(all, buffers));

    std::vector<nn::NamedParameter> trainable;
    for (const auto& p : all) (p.variable.requires_grad() ? trainable : frozen).push_back(p);
    BRIGADE_CHECK(!trainable.empty(), "ddp: all parameters are frozen");
    for (const auto& p : trainable)
      infos.push_back({p.name, p.variable.value().bytes(), p.variable.dtype(), p.variable.dims()});
    make_sync = chosen.make;
    plan = chosen.plan(infos, options.plan);
    check_plan(plan, infos);
    parameters = std::make_unique<optim::FlatParameters>(trainable, plan.order);
    use_plan();
    if (plan_rule(options.plan.rule).replans) {
      BRIGADE_CHECK(options.strategy == "bucketed", "ddp: plan \"", options.plan.rule,
                    "\" needs strategy \"bucketed\"; got \"", options.strategy, "\"");
      replanner.emplace(group, infos, options.replan);
    }
    broadcast_initial_state();
  }

  // Buckets are ranges of flat memory that stays where it is: a new plan costs a few views.
  void use_plan() {
    reducer = std::make_unique<BucketReducer>(group, *parameters, plan, ledger);
    sync = make_sync(*reducer);
  }

  void broadcast_initial_state() {
    std::vector<Work> works;
    for (const BucketSpec& bucket : plan.buckets)
      works.push_back(group.broadcast(parameters->values(bucket.range), 0, "initial parameters"));
    for (const auto& p : frozen) works.push_back(group.broadcast(p.variable.value(), 0, p.name));
    for (const Work& work : works) work.wait();
    broadcast_buffers();
  }

  void broadcast_buffers() {
    std::vector<Work> works;
    for (const auto& buffer : buffers) works.push_back(group.broadcast(buffer.tensor, 0, buffer.name));
    for (const Work& work : works) work.wait();
  }

  // BackwardObserver

  void before_backward(std::span<const Variable> reached, std::uint64_t root_label) override {
    if (std::exchange(unfinished, false)) reducer->drain();
    syncing = no_sync_depth == 0 && (root_label & label) == 0;
    if (!syncing) return;
    unfinished = true;
    if (replanner) {
      if (auto next = replanner->before_step(plan)) {
        plan = std::move(*next);
        use_plan();  // Nothing is under way: the last backward waited for all buckets.
      }
    }
    StepRecord& record = ledger.begin_step();
    record.backward.begin = Clock::now();
    group.begin_step(record.step);
    reducer->begin();

    // Gradients that are present from earlier micro-steps count as used too.
    used = Tensor::zeros({parameters->count()}, DType::i32);
    std::vector<bool> awaited(static_cast<std::size_t>(parameters->count()));
    for (const Variable& leaf : reached) awaited[static_cast<std::size_t>(position(leaf))] = true;
    for (int i = 0; i < parameters->count(); ++i) {
      const bool coming = awaited[static_cast<std::size_t>(i)];
      used.data<std::int32_t>()[i] = coming || parameters->at(i).variable.grad().defined();
      if (!coming) reducer->mark_ready(i);
    }
    used_work = group.all_reduce(used, Reduce::sum, "used parameters");
    sync->begin();
  }

  void grad_ready(const Variable& leaf) override {
    if (!syncing) return;
    reducer->mark_ready(position(leaf));
    sync->on_grad_ready();
  }

  void after_backward() override {
    if (!syncing) return;
    ledger.current().backward.end = Clock::now();
    sync->finish();
    used_work.wait();
    unfinished = false;
    ledger.current().control = {used_work.times().start, used_work.times().end};
    settle_unused();
    if (replanner) replanner->after_step(ledger.last(), plan);
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

  // Now that every rank knows how many ranks used each parameter.
  void settle_unused() {
    std::string named;
    int missing = 0;
    for (int i = 0; i < parameters->count(); ++i) {
      const int users = used.data<std::int32_t>()[i];
      Variable variable = parameters->at(i).variable;
      variable.set_grad_present(users > 0);
      if (users == group.size()) continue;
      if (++missing <= 5)
        named += str(missing > 1 ? ", " : "", "\"", parameters->at(i).name, "\" (used on ", users, " of ",
                     group.size(), " ranks)");
    }
    if (unused == UnusedParameters::zero || missing == 0) return;
    if (missing > 5) named += str(" and ", missing - 5, " more");
    fail(str("ddp: ", missing, " of ", parameters->count(), " parameters took no part in the loss: ", named,
             "; use UnusedParameters::zero (--find-unused) if that is meant"));
  }

  ProcessGroup& group;
  UnusedParameters unused;
  std::vector<nn::NamedBuffer> buffers;
  std::vector<nn::NamedParameter> frozen;
  std::vector<ParameterInfo> infos;
  BucketPlan plan;
  Ledger ledger;
  std::unique_ptr<optim::FlatParameters> parameters;
  std::unique_ptr<BucketReducer> reducer;
  std::unique_ptr<GradSync> (*make_sync)(BucketReducer& reducer) = nullptr;
  std::unique_ptr<GradSync> sync;
  std::optional<Replanner> replanner;
  const std::uint64_t label;
  int no_sync_depth = 0;

  // During one backward.
  bool syncing = false;
  bool unfinished = false;  // Stays true if an exception ends it with buckets under way.
  Tensor used;              // i32 by position: on how many ranks the parameter takes part.
  Work used_work;
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
ProcessGroup& Ddp::group() const { return impl_->group; }
void Ddp::broadcast_buffers() { impl_->broadcast_buffers(); }

Ddp::NoSync::NoSync(std::shared_ptr<Impl> impl) : impl_(std::move(impl)), label_(impl_->label) {
  ++impl_->no_sync_depth;
}
Ddp::NoSync::~NoSync() { --impl_->no_sync_depth; }

}  // namespace brigade::dist
