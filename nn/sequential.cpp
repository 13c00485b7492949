// SPDX-License-Identifier: MIT
// nn/sequential.cpp - the chain of modules.
#include "nn/sequential.h"

#include "nn/linear.h"

namespace brigade::nn {

Module& Sequential::add(std::string name, std::unique_ptr<Module> child) {
  BRIGADE_CHECK(child != nullptr, "Sequential: child \"", name, "\" is null");
  register_module(std::move(name), *child);
  child->train(training());
  children_.push_back(std::move(child));
  return *children_.back();
}

Variable Sequential::forward(const Variable& x) {
  Variable y = x;
  for (int i = 0; i < size(); ++i) {
    auto* const linear = dynamic_cast<Linear*>(&(*this)[i]);
    auto* const relu = i + 1 < size() ? dynamic_cast<ReLU*>(&(*this)[i + 1]) : nullptr;
    if (linear != nullptr && relu != nullptr) {
      y = (*linear)(y, *relu);
      ++i;
    } else {
      y = (*this)[i](y);
    }
  }
  return y;
}

}  // namespace brigade::nn
