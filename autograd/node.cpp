// SPDX-License-Identifier: MIT
// autograd/node.cpp - recording operations and taking graphs apart.
#include "autograd/node.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "autograd/no_grad.h"
#include "core/timeline.h"

namespace brigade {
namespace {

thread_local InputCollector* innermost_collector = nullptr;

// One counter for all threads: a graph may be built on one and extended on another.
std::uint64_t next_sequence() {
  static std::atomic<std::uint64_t> next{0};
  return next.fetch_add(1, std::memory_order_relaxed);
}

std::uint64_t label_of(const std::vector<Edge>& edges) {
  std::uint64_t inherited = ~std::uint64_t{0};
  bool any = false;
  for (const Edge& edge : edges) {
    if (!edge.node) continue;
    inherited &= edge.node->label;
    any = true;
  }
  return GraphLabel::current() | (any ? inherited : 0);
}

}  // namespace

Tensor Gradients::load(const SavedTensor& saved) const {
  BRIGADE_CHECK(!saved.tensor_.defined() || saved.tensor_.version() == saved.version_, op_,
                ": a tensor saved for backward (", saved.tensor_, ") was modified in place; version ",
                saved.version_, " when saved, now ", saved.tensor_.defined() ? saved.tensor_.version() : 0,
                "; clone it before the change, or change it after backward");
  return saved.tensor_;
}

Node::Node(std::string_view op_name, std::vector<Edge> edges_to_inputs, BackwardFunction backward)
    : op(op_name),
      edges(std::move(edges_to_inputs)),
      function(std::move(backward)),
      sequence(next_sequence()),
      label(label_of(edges)),
      layer(current_layer()) {}

Node::~Node() { release(); }

void Node::release() {
  function = nullptr;
  // Dropping an edge may destroy the node behind it, which drops its own edges, and so on: a queue instead of
  // that recursion. Only the outermost release() on a thread drains it.
  thread_local std::vector<std::shared_ptr<Node>> dropped;
  thread_local bool draining = false;
  for (Edge& edge : edges)
    if (edge.node) dropped.push_back(std::move(edge.node));
  edges.clear();
  if (std::exchange(draining, true)) return;
  while (!dropped.empty()) {
    auto node = std::move(dropped.back());
    dropped.pop_back();
    node.reset();
  }
  draining = false;
}

Variable record(std::string_view op, Tensor value, const std::vector<Variable>& inputs,
                BackwardFunction backward) {
  std::vector<Edge> edges;
  bool needed = false;
  for (const Variable& input : inputs) {
    Edge edge;
    if (input.requires_grad()) {
      edge = input.is_leaf() ? Edge{nullptr, input.impl()} : Edge{input.impl()->node, nullptr};
      needed = true;
      if (innermost_collector != nullptr) {
        auto& seen = innermost_collector->variables_;
        if (std::find(seen.begin(), seen.end(), input) == seen.end()) seen.push_back(input);
      }
    }
    edges.push_back(std::move(edge));
  }
  Variable result(std::move(value));
  if (!needed || !grad_enabled()) return result;
  auto node = std::make_shared<Node>(op, std::move(edges), std::move(backward));
  for (const Variable& input : inputs)
    node->inputs.push_back(input.defined() ? Node::Input{input.shape(), input.dtype(), input.value().device()}
                                           : Node::Input{});
  result.impl()->node = std::move(node);
  result.impl()->requires_grad = true;
  return result;
}

InputCollector::InputCollector() : outer_(std::exchange(innermost_collector, this)) {}
InputCollector::~InputCollector() { innermost_collector = outer_; }

}  // namespace brigade
