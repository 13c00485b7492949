// SPDX-License-Identifier: MIT
// autograd/no_grad.h - scopes that change how operations are recorded. All are per thread and nest.
#pragma once

#include <cstdint>

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

/// Labels are bits that operations recorded in the scope carry, and that a backward reports to its observers: those of
/// the operation it starts from. An operation outside inherits what all its operands carry, so that scaling a loss
/// keeps its labels. dist/ddp.h uses one so that no_sync covers a micro-step whether it stands around the forward, the
/// backward or both. Scopes nest: their bits add up.
class GraphLabel {
 public:
  explicit GraphLabel(std::uint64_t bits) : before_(current()) { current() |= bits; }
  ~GraphLabel() { current() = before_; }
  GraphLabel(const GraphLabel&) = delete;
  GraphLabel& operator=(const GraphLabel&) = delete;

  static std::uint64_t& current();

 private:
  std::uint64_t before_;
};

}  // namespace brigade
