// SPDX-License-Identifier: MIT
// autograd/node.h - the graph: what an operation leaves behind for backward, and how an operation is written.
//
// An operation is one function: it computes the value and records a closure that turns the gradient of its
// result into gradients of its inputs. This is all of relu:
//
//   Variable relu(const Variable& x) {
//     Tensor y = ops::unary(Unary::relu, x.value());
//     return record("relu", y, {x}, [y = SavedTensor(y)](const Tensor& dy, Gradients& out) {
//       out.give(0, ops::binary(Binary::relu_grad, dy, out.load(y)));
//     });
//   }
//
// Read before: autograd/variable.h. Read next: autograd/engine.h, autograd/ops/.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/variable.h"

namespace brigade {

/// A tensor kept for backward, with the version it had. Gradients::load gives it back or throws Error if it
/// has been modified in place since.
class SavedTensor {
 public:
  SavedTensor() = default;
  explicit SavedTensor(Tensor tensor)
      : tensor_(std::move(tensor)), version_(tensor_.defined() ? tensor_.version() : 0) {}

 private:
  friend class Gradients;
  Tensor tensor_;
  std::uint64_t version_ = 0;
};

/// What an operation's backward closure sees: which gradients are wanted, and where to put them.
class Gradients {
 public:
  virtual ~Gradients() = default;

  /// False if nobody needs the gradient of input `i`: skip the work. Otherwise
  /// give(i, …) must be called once.
  virtual bool wanted(int i) const = 0;
  /// Where a kernel should write the gradient of input `i`: a parameter's bucket memory on its first use, so
  /// that nothing is copied; fresh contiguous memory otherwise. Call give(i, …) with it.
  virtual Tensor destination(int i) = 0;
  /// What other operations have given for input `i` so far, if this one may write to it: dense, in the input's shape
  /// and dtype. Else undefined. What is taken is gone here: add to it, then give(i, …) the sum.
  virtual Tensor take_sum(int i) = 0;
  /// The gradient of input `i`, in its shape and dtype. May share memory with `dy` or with other gradients:
  /// the engine writes to it only once nobody else can see it.
  virtual void give(int i, Tensor gradient) = 0;

  /// The saved tensor. Throws Error naming the operation if it was changed in place.
  Tensor load(const SavedTensor& saved) const;

 protected:
  explicit Gradients(std::string_view op) : op_(op) {}
  std::string_view op_;
};

/// `dy` is dense or a view; the closure may write over it where storage().sole_owner() says that nobody else can
/// see it (autograd/ops/support.h, over_or_empty), and give it as a gradient.
using BackwardFunction = std::function<void(const Tensor& dy, Gradients& out)>;

/// Leads from an operation to one of its inputs: another operation, a leaf, or nothing (no gradient needed).
struct Edge {
  std::shared_ptr<Node> node;
  std::shared_ptr<Variable::Impl> leaf;
  explicit operator bool() const { return node || leaf; }
};

/// One recorded operation. Its closure and edges are freed by the backward that runs
/// it, unless the graph is retained.
class Node {
 public:
  Node(std::string_view op, std::vector<Edge> edges, BackwardFunction function);
  ~Node();  // Iterative: a graph of a million operations must not overflow the stack.

  std::string_view op;  ///< A string literal.
  std::vector<Edge> edges;
  BackwardFunction function;              ///< Empty once freed.
  HookList<Tensor(const Tensor&)> hooks;  ///< On the result's gradient.
  std::uint64_t
      sequence;  ///< Order of recording in this process: operands before users. Backward runs the latest first.
  std::uint64_t label;  ///< GraphLabel at recording, and what all operands carry.
  int layer;            ///< current_layer() at recording: whose time its backward is.
  struct Input {
    Shape shape;
    DType dtype;
    Device device;
  };
  std::vector<Input> inputs;  ///< What the gradients must look like, by input.

  void release();  ///< Frees closure and edges.
};

struct Variable::Impl {
  Tensor value;
  bool requires_grad = false;
  std::shared_ptr<Node> node;  // Null for a leaf.

  // Leaves only.
  Tensor grad;  // Valid if grad_present; else only memory to write to (if grad_bound).
  bool grad_present = false;
  bool grad_bound = false;
  HookList<Tensor(const Tensor&)> hooks;
  HookList<void(Variable&)> post_accumulate_hooks;
  std::weak_ptr<BackwardObserver> observer;
};

/// Wraps the value an operation computed. The closure is kept only if an input requires a gradient and
/// gradients are enabled here: hold what backward needs in its captures, and it goes with it. An undefined
/// input (an absent bias) counts as one that needs no gradient.
Variable record(std::string_view op, Tensor value, const std::vector<Variable>& inputs,
                BackwardFunction backward);

/// Collects the distinct variables requiring a gradient that operations on this thread take as inputs in its
/// scope, recorded or not. Under NoGrad nothing made inside requires one, so these are what comes in from
/// outside: activation checkpointing needs to know them. Scopes nest; the innermost collects.
class InputCollector {
 public:
  InputCollector();
  ~InputCollector();
  InputCollector(const InputCollector&) = delete;
  InputCollector& operator=(const InputCollector&) = delete;
  const std::vector<Variable>& variables() const { return variables_; }

 private:
  friend Variable record(std::string_view, Tensor, const std::vector<Variable>&, BackwardFunction);
  std::vector<Variable> variables_;
  InputCollector* outer_;
};

}  // namespace brigade
