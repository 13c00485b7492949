// SPDX-License-Identifier: MIT
// autograd/no_grad.h - scopes that change how operations are recorded. All are per thread and nest.
#pragma once

#include <utility>

namespace brigade {

/// True where operations are recorded for backward.
bool grad_enabled();
void set_grad_enabled(bool enabled);

/// In its scope no operation is recorded: results do not require gradients and nothing is saved.
class NoGrad {
 public:
  NoGrad() : before_(grad_enabled()) { set_grad_enabled(false); }
  ~NoGrad() { set_grad_enabled(before_); }
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};

/// A label that operations recorded in its scope carry, and that a backward reports to its observers: the label of
/// the operation it starts from. dist/ddp.h uses it so that no_sync covers a micro-step whether it stands around
/// the forward, the backward or both. 0 is "none".
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
