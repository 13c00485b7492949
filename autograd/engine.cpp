// SPDX-License-Identifier: MIT
// autograd/engine.cpp - one backward is one BackwardTask: discover, count, run.
//
// Invariants
//   Every node and leaf that will be reached is known, with the number of contributions it will get, before
//   the first closure runs. A node runs once, after all its contributions; contributions are delivered after
//   the closure that gave them has returned, in the order of its inputs (a hook may start to overwrite what
//   the closure still reads). Nothing given by a closure is written to while anybody else can see it: the same
//   tensor may serve two inputs. A closure may take the sum so far and give it back with its contribution in it.
// Read before: autograd/node.h, autograd/engine.h. Read next: nn/optim/flat_parameters.h.
#include "autograd/engine.h"

#include <algorithm>
#include <queue>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "autograd/no_grad.h"
#include "autograd/node.h"
#include "core/timeline.h"
#include "kernels/ops.h"

namespace brigade {
namespace {

// Whether `t` is dense and in memory that nobody else can see: then it may be written to.
bool is_ours(const Tensor& t) { return t.storage().sole_owner() && t.is_contiguous(t.memory_format()); }

// Adds `b` to `a` and returns the sum, in memory of ours where there is such.
Tensor sum_of(Tensor a, Tensor b) {
  // The two orders of adding give the same bits.
  if (!is_ours(a)) std::swap(a, b);
  if (!is_ours(a)) return ops::add(b, a);
  ops::add_(a, b);
  return a;
}

// A sum of contributions that has not got all of them yet.
struct Pending {
  int missing = 0;
  Tensor sum;

  void add(Tensor contribution) {
    sum = sum.defined() ? sum_of(std::move(sum), std::move(contribution)) : std::move(contribution);
  }
};

// Runs tensor hooks on one contribution.
void apply_hooks(HookList<Tensor(const Tensor&)>& hooks, Tensor& contribution, std::string_view where) {
  if (hooks.empty()) return;
  hooks.fire([&](const auto& hook) {
    Tensor replacement = hook(contribution);
    if (!replacement.defined()) return;
    BRIGADE_CHECK(replacement.shape() == contribution.shape() && replacement.dtype() == contribution.dtype(),
                  "tensor hook on ", where, ": must return ", contribution, "; got ", replacement);
    contribution = std::move(replacement);
  });
}

class BackwardTask;
thread_local BackwardTask* running_task = nullptr;

class BackwardTask {
 public:
  // Accumulates into leaves.
  BackwardTask(const Variable& root, const BackwardOptions& options) : options_(options) { start(root); }

  // Captures the gradients of `targets` instead.
  BackwardTask(const Variable& root, const std::vector<Variable>& targets, const BackwardOptions& options)
      : options_(options), capturing_(true) {
    for (const Variable& target : targets) {
      BRIGADE_CHECK(target.defined(), "grad: an input is undefined");
      if (target.is_leaf())
        captured_leaves_[target.impl().get()];
      else
        captured_nodes_[target.impl()->node.get()];
    }
    start(root);
  }

  void run() {
    const auto outer = std::exchange(running_task, this);
    try {
      run_all();
    } catch (...) {
      running_task = outer;
      throw;
    }
    running_task = outer;
  }

  Tensor captured(const Variable& target) const {
    const auto& sums = target.is_leaf() ? captured_leaves_.at(target.impl().get())
                                        : captured_nodes_.at(target.impl()->node.get());
    return sums.sum;
  }

  void add_callback(std::function<void()> callback) { callbacks_.push_back(std::move(callback)); }

 private:
  class Sink;

  void start(const Variable& root) {
    BRIGADE_CHECK(
        root.requires_grad(),
        "backward: the result requires no gradient (no input did, or it was computed under NoGrad)");
    root_ = root;
    gradient_ = options_.gradient;
    if (!gradient_.defined()) {
      BRIGADE_CHECK(root.numel() == 1,
                    "backward: needs a gradient for a result of more than one element; got ", root.value());
      gradient_ = ops::full(root.shape(), 1.0, root.dtype(), root.value().device());
    }
    BRIGADE_CHECK(gradient_.shape() == root.shape() && gradient_.dtype() == root.dtype(),
                  "backward: gradient must be ", root.value(), "; got ", gradient_);
  }

  Edge root_edge() const {
    return root_.is_leaf() ? Edge{nullptr, root_.impl()} : Edge{root_.impl()->node, nullptr};
  }
  bool is_captured(const Node* node) const { return captured_nodes_.contains(node); }

  // All nodes that will run, earliest recorded first.
  std::vector<std::shared_ptr<Node>> discover() const {
    std::vector<std::shared_ptr<Node>> found, stack;
    std::unordered_set<const Node*> seen;
    const auto visit = [&](const std::shared_ptr<Node>& node) {
      if (node && !is_captured(node.get()) && seen.insert(node.get()).second) stack.push_back(node);
    };
    visit(root_edge().node);
    while (!stack.empty()) {
      const auto node = std::move(stack.back());
      stack.pop_back();
      BRIGADE_CHECK(node->function != nullptr, "backward: the graph behind ", node->op,
                    " was freed by an earlier backward; use retain_graph there to go through it again");
      found.push_back(node);
      for (const Edge& edge : node->edges) visit(edge.node);
    }
    std::sort(found.begin(), found.end(),
              [](const auto& a, const auto& b) { return a->sequence < b->sequence; });
    if (!capturing_) return found;
    // Keep what leads to a target. Inputs were recorded before their users, so one
    // pass in this order settles it.
    std::unordered_set<const Node*> leading;
    for (const auto& node : found)
      for (const Edge& edge : node->edges)
        if (captured_leaves_.contains(edge.leaf.get()) || is_captured(edge.node.get()) ||
            leading.contains(edge.node.get()))
          leading.insert(node.get());
    std::erase_if(found, [&](const auto& node) { return !leading.contains(node.get()); });
    return found;
  }

  void expect_contribution(const Edge& edge) {
    if (capturing_) {
      if (edge.node && nodes_.contains(edge.node.get())) ++nodes_[edge.node.get()].missing;
      return;
    }
    if (edge.node) ++nodes_[edge.node.get()].missing;
    if (!edge.leaf) return;
    auto [at, is_new] = leaves_.try_emplace(edge.leaf.get());
    if (is_new) reached_.push_back(Variable(edge.leaf));
    ++at->second;
  }

  bool wanted(const Edge& edge) const {
    if (!capturing_) return static_cast<bool>(edge);
    return edge.leaf ? captured_leaves_.contains(edge.leaf.get())
                     : is_captured(edge.node.get()) || nodes_.contains(edge.node.get());
  }

  void run_all() {
    const auto order = discover();  // Also keeps every node alive until the end.
    run_closures(order);
    // Callbacks may add callbacks.
    for (std::size_t i = 0; i < callbacks_.size(); ++i) std::exchange(callbacks_[i], nullptr)();
    for (const auto& observer : observers_) observer->after_backward();
  }

  void run_closures(const std::vector<std::shared_ptr<Node>>& order) {
    BackwardSpans spans;
    for (const auto& node : order) nodes_[node.get()].missing = 0;
    expect_contribution(root_edge());
    for (const auto& node : order)
      for (const Edge& edge : node->edges) expect_contribution(edge);
    announce();
    if (wanted(root_edge())) deliver(root_edge(), gradient_);
    while (!ready_.empty()) {
      Node* node = ready_.top();
      ready_.pop();
      spans.at(node->layer);
      run_node(*node);
    }
  }

  // Tells every observer which of its leaves this backward will reach.
  void announce() {
    std::vector<std::vector<Variable>> reached;
    std::vector<Variable> unobserved;
    for (const Variable& leaf : reached_) {
      const auto observer = leaf.impl()->observer.lock();
      if (!observer) {
        unobserved.push_back(leaf);
        continue;
      }
      const auto at = std::find(observers_.begin(), observers_.end(), observer);
      const auto index = static_cast<std::size_t>(at - observers_.begin());
      if (at == observers_.end()) {
        observers_.push_back(observer);
        reached.emplace_back();
      }
      reached[index].push_back(leaf);
    }
    const std::uint64_t label = root_.is_leaf() ? 0 : root_.impl()->node->label;
    for (std::size_t i = 0; i < observers_.size(); ++i)
      observers_[i]->before_backward(
          {.root = root_, .reached = reached[i], .unobserved = unobserved, .label = label});
  }

  void run_node(Node& node);

  // The sum of what has come along `edge`; null for a leaf whose own gradient takes it.
  Pending* pending(const Edge& edge) {
    if (edge.leaf) return capturing_ ? &captured_leaves_.at(edge.leaf.get()) : nullptr;
    return &(is_captured(edge.node.get()) ? captured_nodes_ : nodes_).at(edge.node.get());
  }

  // Takes that sum, if the next contribution may be added to it unseen by hooks and by whoever holds earlier ones.
  Tensor take_sum(const Edge& edge) {
    Pending* const sums = wanted(edge) ? pending(edge) : nullptr;
    if (sums == nullptr || !sums->sum.defined() || !is_ours(sums->sum)) return {};
    if (edge.node && !edge.node->hooks.empty()) return {};
    return std::exchange(sums->sum, Tensor());
  }

  void deliver(const Edge& edge, Tensor contribution) {
    Pending* const sums = pending(edge);
    if (sums == nullptr) return deliver_to_leaf(edge.leaf, std::move(contribution));
    Node* node = edge.node.get();
    if (node != nullptr) apply_hooks(node->hooks, contribution, node->op);
    sums->add(std::move(contribution));
    if (node != nullptr && !is_captured(node) && --sums->missing == 0) ready_.push(node);
  }

  void deliver_to_leaf(const std::shared_ptr<Variable::Impl>& leaf, Tensor contribution) {
    apply_hooks(leaf->hooks, contribution, "a leaf");
    if (leaf->grad_present) {
      ops::add_(leaf->grad, contribution);
    } else if (leaf->grad_bound) {
      if (!contribution.same_view(leaf->grad)) ops::copy_(leaf->grad, contribution);
      leaf->grad.bump_version();
    } else {
      // Adopt the tensor if nobody else can see it; a shared one would be
      // changed under its other owner later.
      const bool adoptable = contribution.storage().sole_owner() && contribution.is_contiguous();
      leaf->grad =
          adoptable ? std::move(contribution) : ops::clone(contribution, leaf->value.memory_format());
    }
    leaf->grad_present = true;
    if (--leaves_.at(leaf.get()) > 0) return;
    Variable variable(leaf);
    leaf->post_accumulate_hooks.fire([&](const auto& hook) { hook(variable); });
    if (const auto observer = leaf->observer.lock()) observer->grad_ready(variable);
  }

  struct EarlierFirst {
    bool operator()(const Node* a, const Node* b) const { return a->sequence < b->sequence; }
  };

  BackwardOptions options_;
  bool capturing_ = false;
  Variable root_;
  Tensor gradient_;
  std::unordered_map<const Node*, Pending> nodes_;
  std::unordered_map<Variable::Impl*, int> leaves_;  // Contributions missing.
  std::vector<Variable> reached_;                    // Leaves in order of discovery.
  std::unordered_map<const Node*, Pending> captured_nodes_;
  std::unordered_map<Variable::Impl*, Pending> captured_leaves_;
  std::priority_queue<Node*, std::vector<Node*>, EarlierFirst> ready_;  // Top: the latest recorded.
  std::vector<std::shared_ptr<BackwardObserver>> observers_;
  std::vector<std::function<void()>> callbacks_;
};

// What the closure of one node sees.
class BackwardTask::Sink final : public Gradients {
 public:
  Sink(BackwardTask& task, Node& node)
      : Gradients(node.op), task_(task), node_(node), given_(node.edges.size()) {}

  bool wanted(int i) const override { return task_.wanted(edge(i)); }

  Tensor destination(int i) override {
    const auto& input = node_.inputs[static_cast<std::size_t>(i)];
    const auto& leaf = edge(i).leaf;
    // A parameter's own memory, unless something is in it already, a hook may want to replace the contribution, or
    // this operation takes the parameter twice and would add up into what it still writes.
    const bool once = std::count_if(node_.edges.begin(), node_.edges.end(),
                                    [&](const Edge& other) { return other.leaf == leaf; }) == 1;
    if (!task_.capturing_ && leaf && leaf->grad_bound && !leaf->grad_present && leaf->hooks.empty() && once)
      return leaf->grad;
    return Tensor::empty(input.shape, input.dtype, input.device);
  }

  Tensor take_sum(int i) override { return task_.take_sum(edge(i)); }

  void give(int i, Tensor gradient) override {
    const auto& input = node_.inputs[static_cast<std::size_t>(i)];
    BRIGADE_CHECK(gradient.defined() && gradient.shape() == input.shape && gradient.dtype() == input.dtype,
                  op_, ": the gradient of input ", i, " must be ", input.dtype, " ", input.shape, "; got ",
                  gradient);
    given_[static_cast<std::size_t>(i)] = std::move(gradient);
  }

  void deliver() {
    for (std::size_t i = 0; i < given_.size(); ++i) {
      if (!task_.wanted(node_.edges[i])) continue;
      BRIGADE_CHECK(given_[i].defined(), op_, ": backward gave no gradient for input ", i);
      task_.deliver(node_.edges[i], std::move(given_[i]));
    }
  }

 private:
  const Edge& edge(int i) const { return node_.edges[static_cast<std::size_t>(i)]; }

  BackwardTask& task_;
  Node& node_;
  std::vector<Tensor> given_;
};

void BackwardTask::run_node(Node& node) {
  Sink sink(*this, node);
  {
    const Tensor dy = std::exchange(nodes_.at(&node).sum, Tensor());
    node.function(dy, sink);
  }
  // What the closure saved is free before hooks and the next closure allocate.
  if (!options_.retain_graph) node.function = nullptr;
  sink.deliver();
  if (!options_.retain_graph) node.release();
}

}  // namespace

void backward(const Variable& root, const BackwardOptions& options) { BackwardTask(root, options).run(); }

std::vector<Tensor> grad(const Variable& root, const std::vector<Variable>& inputs,
                         const BackwardOptions& options) {
  BackwardTask task(root, inputs, options);
  task.run();
  std::vector<Tensor> gradients;
  for (const Variable& input : inputs) gradients.push_back(task.captured(input));
  return gradients;
}

void after_backward(std::function<void()> callback) {
  BRIGADE_CHECK(running_task != nullptr, "after_backward: no backward is running on this thread");
  running_task->add_callback(std::move(callback));
}

}  // namespace brigade
