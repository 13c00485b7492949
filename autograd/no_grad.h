// SPDX-License-Identifier: MIT
// autograd/no_grad.h - scopes that change how operations are recorded. All are per thread and nest.
#pragma once

#include <utility>

namespace brigade {

/// True where operations are recorded for backward.
bool grad_enabled();
void set_grad_enabled(bool enabled);

/// Sets grad_enabled() in its scope.
class GradMode {
 public:
  explicit GradMode(bool enabled) : before_(grad_enabled()) { set_grad_enabled(enabled); }
  ~GradMode() { set_grad_enabled(before_); }
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  bool before_;
};

/// In its scope no operation is recorded: results do not require gradients and nothing is saved.
class NoGrad : public GradMode {
 public:
  NoGrad() : GradMode(false) {}
};

/// A label that operations recorded in its scope carry, and that a backward reports to its observers: the
/// label of the operation it starts from. dist/ddp.h uses it so that no_sync covers a micro-step whether it
/// stands around the forward, the backward or both. 0 is "none".
class GraphLabel {
 public:
  explicit GraphLabel(int label) : before_(std::exchange(current(), label)) {}
  ~GraphLabel() { current() = before_; }
  GraphLabel(const GraphLabel&) = delete;
  GraphLabel& operator=(const GraphLabel&) = delete;

  static int& current();

 private:
  int before_;
};

}  // namespace brigade
