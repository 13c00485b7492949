// SPDX-License-Identifier: MIT
// nn/module.h - the base of layers and models: named parameters, buffers and children.
// Read before: autograd/variable.h. Read next: nn/linear.h, nn/state_dict.h.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/variable.h"
#include "core/fault_point.h"
#include "core/timeline.h"

namespace brigade::nn {

struct NamedParameter {
  std::string name;  ///< "layer1.0.conv1.weight": PyTorch's dotted path.
  Variable variable;
};
struct NamedBuffer {
  std::string name;
  Tensor tensor;  ///< Shares memory with the module's: writing changes the module.
};

/// A function with parameters. Children are members of the derived class, registered by name in its
/// constructor; a module is therefore neither copied nor moved.
class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  virtual Variable forward(const Variable& x) = 0;
  /// forward(), with a span of this layer on the thread's timeline: layers call each other this way.
  Variable operator()(const Variable& x) {
    const TimedScope span(SpanKind::forward, layer_);
    Variable y = forward(x);
    if (faults_armed()) fault_point(FaultAt::activation, y.value(), std::to_string(layer_));
    return y;
  }

  /// Depth first, in order of registration (own before children's, as in PyTorch). A parameter shared by two
  /// modules appears once, under its first name.
  std::vector<NamedParameter> named_parameters() const;
  /// The same walk with every name a shared parameter has.
  std::vector<NamedParameter> named_parameters_with_aliases() const;
  std::vector<Variable> parameters() const;
  std::vector<NamedBuffer> named_buffers() const;
  /// Values of parameters and buffers under every name they have, module by module: what state_dict() holds.
  std::vector<NamedBuffer> named_tensors() const;

  /// Calls `visit` for this module and all below, in the same order: for what concerns one kind of layer only.
  void for_each_module(const std::function<void(Module&)>& visit);

  /// Numbers this module and all below from `first` on, in the same order, and returns their paths ("", "layer1",
  /// "layer1.0", …) by number: what a Timeline calls their spans.
  std::vector<std::string> number_layers(int first = 0);
  /// For spans of what runs a layer in another way than by operator(x); -1: not numbered.
  int layer() const { return layer_; }

  /// Switches batch norm and dropout, here and in all children.
  void train(bool on = true);
  void eval() { train(false); }
  bool training() const { return training_; }

  void zero_grad();

  /// Moves the values of parameters and buffers to `device`, and gradients if there are any: the variables stay the
  /// same. Before an optimizer or Ddp makes memory of its own for them.
  void to(Device device);

 protected:
  /// Returns `parameter`, so that a constructor can initialise its member with the call. Names have no dots
  /// and are unique within a module (Error).
  Variable register_parameter(std::string name, Variable parameter);
  void register_buffer(std::string name, Tensor buffer);
  /// `child` is a member of the derived class (or owned by it) and lives as long as this module.
  void register_module(std::string name, Module& child);

 private:
  void number(const std::string& path, int first, std::vector<std::string>& names);
  template <class Visit>
  void walk(const std::string& prefix, const Visit& visit) const;

  std::vector<NamedParameter> parameters_;
  std::vector<NamedBuffer> buffers_;
  std::vector<std::pair<std::string, Module*>> children_;
  bool training_ = true;
  int layer_ = -1;  // See number_layers().
};

/// Elements of all parameters, shared ones once.
std::int64_t count_parameters(const Module& module);

}  // namespace brigade::nn
