// SPDX-License-Identifier: MIT
// nn/sequential.cpp - the chain of modules.
#include "nn/sequential.h"

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
  for (const auto& child : children_) y = (*child)(y);
  return y;
}

}  // namespace brigade::nn
