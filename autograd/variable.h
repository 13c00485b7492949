// SPDX-License-Identifier: MIT
// autograd/variable.h - a tensor that remembers how it was made, and holds a gradient.
// Read before: core/tensor.h, autograd/hooks.h. Read next: autograd/node.h (the graph), autograd/engine.h.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "autograd/hooks.h"
#include "core/tensor.h"

namespace brigade {

class Node;
class Variable;

/// What an observer hears before the first gradient of a backward is computed.
struct BackwardStart {
  const Variable& root;  ///< What backward() was called on: the loss.
  /// The leaves attached to this observer that will be given a gradient, each once: unused ones are known here,
  /// for free.
  std::span<const Variable> reached;
  std::span<const Variable> unobserved;  ///< The leaves that will be given a gradient and have no observer.
  std::uint64_t label = 0;               ///< See GraphLabel.
};

/// Watches the backwards that reach the leaves it is attached to: DDP is one. Calls come on the thread that
/// runs backward. An exception from any of them ends the backward.
class BackwardObserver {
 public:
  virtual ~BackwardObserver() = default;
  virtual void before_backward(const BackwardStart& start) = 0;
  /// The last contribution to `leaf` has been added; after its post-accumulate hooks.
  virtual void grad_ready(const Variable& leaf) = 0;
  /// All gradients are in place.
  virtual void after_backward() = 0;
};

/// A handle to a node of the computation: copies are the same variable.
///
/// A *leaf* was made by the user (a parameter, an input); anything else is the result of an operation.
/// Gradients are plain tensors: there is no derivative of a derivative.
class Variable {
 public:
  Variable() = default;  ///< Undefined.
  /// A leaf that does not require a gradient. Implicit: every operation takes plain tensors too.
  Variable(Tensor value);  // NOLINT(google-explicit-constructor)
  /// A leaf that does.
  static Variable parameter(Tensor value);

  bool defined() const { return impl_ != nullptr; }
  const Tensor& value() const;
  const Shape& shape() const { return value().shape(); }
  std::int64_t size(std::int64_t dim) const { return value().size(dim); }
  int dims() const { return value().dims(); }
  std::int64_t numel() const { return value().numel(); }
  DType dtype() const { return value().dtype(); }
  double item() const { return value().item(); }

  bool requires_grad() const;
  bool is_leaf() const;
  /// Leaves only. Freezing a parameter keeps its gradient memory.
  void set_requires_grad(bool required);
  /// The same value without history, as a leaf. Shares memory.
  Variable detach() const;

  /// The gradient accumulated so far; undefined tensor if there is none.
  Tensor grad() const;
  /// Forgets the gradient without touching its memory: the next backward writes instead of adding.
  void zero_grad();
  /// Declares the bound gradient memory valid or not (a collective has filled it;
  /// an unused parameter has none).
  void set_grad_present(bool present);

  /// Moves the value into `memory` (same shape and dtype): copies it there and makes it the value.
  void bind_value(Tensor memory);
  /// From now on gradients are written straight into `memory` (same shape and dtype), never elsewhere.
  void bind_grad(Tensor memory);
  /// Bound gradient memory, whether or not it holds a gradient; undefined if not bound.
  Tensor grad_memory() const;

  /// Called with each contribution to this variable's gradient, before accumulation. A defined result
  /// replaces the contribution. Contributions are many when the variable was used many times.
  HookHandle register_hook(std::function<Tensor(const Tensor&)> hook);
  /// Leaves only. Called once per backward, after the last contribution has been added to grad().
  HookHandle register_post_accumulate_hook(std::function<void(Variable&)> hook);
  /// Leaves only; nullptr detaches. Not owned beyond the caller's shared_ptr.
  void set_observer(std::weak_ptr<BackwardObserver> observer);
  bool has_observer() const;

  /// Identity: the same variable, not equal values.
  friend bool operator==(const Variable& a, const Variable& b) { return a.impl_ == b.impl_; }

  struct Impl;  // Defined in node.h, for the engine and for operations.
  const std::shared_ptr<Impl>& impl() const { return impl_; }
  explicit Variable(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace brigade
