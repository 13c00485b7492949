// SPDX-License-Identifier: MIT
// autograd/hooks.h - lists of callbacks that may change while they fire.
// Read next: autograd/variable.h, which offers hooks on tensors.
#pragma once

#include <functional>
#include <memory>
#include <vector>

namespace brigade {

/// Removes one hook. A cheap handle: copies refer to the same hook; dropping it leaves the hook in place.
class HookHandle {
 public:
  HookHandle() = default;
  explicit HookHandle(std::weak_ptr<bool> alive) : alive_(std::move(alive)) {}
  /// Safe at any time, also while hooks of the same list fire (a removed hook does not fire again, not even
  /// later in the same round), and after the tensor is gone.
  void remove() {
    if (auto alive = alive_.lock()) *alive = false;
  }

 private:
  std::weak_ptr<bool> alive_;
};

/// Hooks in order of registration.
///
/// Invariant: fire() calls each hook that was registered when it began and has not been removed since, once
/// and in order. Hooks added meanwhile wait for the next round. Not thread-safe: one thread runs a backward.
template <class Signature>
class HookList {
 public:
  HookHandle add(std::function<Signature> function) {
    auto hook = std::make_shared<Hook>(Hook{std::move(function), std::make_shared<bool>(true)});
    hooks_.push_back(hook);
    return HookHandle(hook->alive);
  }

  bool empty() const { return hooks_.empty(); }

  /// Calls `visit(function)` for each live hook. Works on a copy of the list (of shared pointers), so that
  /// the list, and the hook itself, may go away under it.
  template <class Visit>
  void fire(Visit&& visit) {
    const auto round = hooks_;
    for (const auto& hook : round)
      if (*hook->alive) visit(hook->function);
    std::erase_if(hooks_, [](const auto& hook) { return !*hook->alive; });
  }

 private:
  struct Hook {
    std::function<Signature> function;
    std::shared_ptr<bool> alive;
  };
  std::vector<std::shared_ptr<Hook>> hooks_;
};

}  // namespace brigade
