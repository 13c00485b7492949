// SPDX-License-Identifier: MIT
// nn/module.cpp - the walks over a tree of modules.
#include "nn/module.h"

#include <algorithm>

namespace brigade::nn {

namespace {

template <class Named>
void check_new_name(const char* what, const std::string& name, const std::vector<Named>& known) {
  // A dot would make "a.b" ambiguous between a parameter of child "a" and one of our own.
  BRIGADE_CHECK(!name.empty() && name.find('.') == std::string::npos, what,
                ": a name must be non-empty and without dots; got \"", name, "\"");
  for (const auto& entry : known) {
    const auto& other = [&]() -> const std::string& {
      if constexpr (requires { entry.name; })
        return entry.name;
      else
        return entry.first;
    }();
    BRIGADE_CHECK(other != name, what, ": the name \"", name, "\" is taken");
  }
}

}  // namespace

// Calls visit(prefix, module) for this module and all below, own before children's.
template <class Visit>
void Module::walk(const std::string& prefix, const Visit& visit) const {
  visit(prefix, *this);
  for (const auto& [name, child] : children_) child->walk(prefix + name + ".", visit);
}

std::vector<NamedParameter> Module::named_parameters_with_aliases() const {
  std::vector<NamedParameter> out;
  walk("", [&](const std::string& prefix, const Module& module) {
    for (const NamedParameter& own : module.parameters_) out.push_back({prefix + own.name, own.variable});
  });
  return out;
}

std::vector<NamedParameter> Module::named_parameters() const {
  std::vector<NamedParameter> out;
  for (NamedParameter& candidate : named_parameters_with_aliases()) {
    const bool seen = std::any_of(out.begin(), out.end(), [&](const NamedParameter& earlier) {
      return earlier.variable == candidate.variable;
    });
    if (!seen) out.push_back(std::move(candidate));
  }
  return out;
}

std::vector<Variable> Module::parameters() const {
  std::vector<Variable> out;
  for (const NamedParameter& parameter : named_parameters()) out.push_back(parameter.variable);
  return out;
}

std::vector<NamedBuffer> Module::named_buffers() const {
  std::vector<NamedBuffer> out;
  walk("", [&](const std::string& prefix, const Module& module) {
    for (const NamedBuffer& own : module.buffers_) {
      const bool seen = std::any_of(out.begin(), out.end(), [&](const NamedBuffer& earlier) {
        return earlier.tensor.same_view(own.tensor);
      });
      if (!seen) out.push_back({prefix + own.name, own.tensor});
    }
  });
  return out;
}

std::vector<NamedBuffer> Module::named_tensors() const {
  std::vector<NamedBuffer> out;
  walk("", [&](const std::string& prefix, const Module& module) {
    for (const NamedParameter& own : module.parameters_)
      out.push_back({prefix + own.name, own.variable.value()});
    for (const NamedBuffer& own : module.buffers_) out.push_back({prefix + own.name, own.tensor});
  });
  return out;
}

void Module::for_each_module(const std::function<void(Module&)>& visit) {
  visit(*this);
  for (auto& [name, child] : children_) child->for_each_module(visit);
}

std::vector<std::string> Module::number_layers(int first) {
  std::vector<std::string> names;
  number("", first, names);
  return names;
}

void Module::number(const std::string& path, int first, std::vector<std::string>& names) {
  layer_ = first + static_cast<int>(names.size());
  names.push_back(path);
  for (auto& [name, child] : children_) child->number(path.empty() ? name : path + "." + name, first, names);
}

void Module::train(bool on) {
  for_each_module([on](Module& module) { module.training_ = on; });
}

void Module::zero_grad() {
  for (Variable& parameter : parameters()) parameter.zero_grad();
}

void Module::to(Device device) {
  for (const NamedBuffer& tensor : named_tensors()) tensor.tensor.storage().move_to(device);
  for (const Variable& parameter : parameters())
    for (const Tensor& grad : {parameter.grad(), parameter.grad_memory()})
      if (grad.defined()) grad.storage().move_to(device);
}

Variable Module::register_parameter(std::string name, Variable parameter) {
  check_new_name("register_parameter", name, parameters_);
  BRIGADE_CHECK(parameter.defined() && parameter.is_leaf(), "register_parameter: \"", name,
                "\" must be a leaf");
  parameters_.push_back({std::move(name), parameter});
  return parameter;
}

void Module::register_buffer(std::string name, Tensor buffer) {
  check_new_name("register_buffer", name, buffers_);
  buffers_.push_back({std::move(name), std::move(buffer)});
}

void Module::register_module(std::string name, Module& child) {
  check_new_name("register_module", name, children_);
  children_.emplace_back(std::move(name), &child);
}

std::int64_t count_parameters(const Module& module) {
  std::int64_t count = 0;
  for (const Variable& parameter : module.parameters()) count += parameter.numel();
  return count;
}

}  // namespace brigade::nn
