// SPDX-License-Identifier: MIT
// nn/sequential.h - a chain of modules. Read next: models/mlp.h.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nn/module.h"

namespace brigade::nn {

/// Owns its children and applies them in order; the identity when empty. Children are named "0", "1", …
/// unless given a name. A Linear takes a ReLU right behind it along.
class Sequential : public Module {
 public:
  Sequential() = default;

  /// Appends a new M(args…) and returns it: `model.emplace<Linear>(784, 10)`.
  template <class M, class... Args>
  M& emplace(Args&&... args) {
    auto child = std::make_unique<M>(std::forward<Args>(args)...);
    M& result = *child;
    add(std::move(child));
    return result;
  }
  Module& add(std::unique_ptr<Module> child) {
    return add(std::to_string(children_.size()), std::move(child));
  }
  Module& add(std::string name, std::unique_ptr<Module> child);

  int size() const { return static_cast<int>(children_.size()); }
  Module& operator[](int i) const { return *children_[static_cast<std::size_t>(i)]; }

  Variable forward(const Variable& x) override;

 private:
  std::vector<std::unique_ptr<Module>> children_;
};

}  // namespace brigade::nn
