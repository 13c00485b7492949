// SPDX-License-Identifier: MIT
// autograd/checkpoint.cpp - recompute instead of remember.
//
// The trick that keeps hooks right: while the first run goes by unrecorded, we note every trainable variable
// it takes from outside. These become inputs of one "checkpoint" operation, so the outer engine knows from
// the start that they will receive a gradient from it, and counts one contribution.
#include "autograd/checkpoint.h"

#include <utility>

#include "autograd/engine.h"
#include "autograd/no_grad.h"
#include "autograd/node.h"
#include "core/rng.h"
#include "kernels/ops.h"

namespace brigade {
namespace {

thread_local bool recomputing = false;

// Restores a value when the scope ends, also by an exception.
template <class T>
class Restore {
 public:
  explicit Restore(T& place) : place_(place), before_(place) {}
  ~Restore() { place_ = before_; }
  Restore(const Restore&) = delete;
  Restore& operator=(const Restore&) = delete;

 private:
  T& place_;
  T before_;
};

}  // namespace

bool is_recomputing() { return recomputing; }

Variable checkpoint(const std::function<Variable(const Variable&)>& segment, const Variable& x) {
  if (!grad_enabled()) return segment(x);
  const Generator generator = default_generator();
  std::vector<Variable> inputs{x};
  Tensor y;
  {
    NoGrad no_grad;
    InputCollector collector;
    y = segment(x.detach()).value();
    inputs.insert(inputs.end(), collector.variables().begin(), collector.variables().end());
  }
  const std::vector<Variable> outside(inputs.begin() + 1, inputs.end());
  std::vector<SavedTensor> saved_outside;  // The second run must see the same values.
  for (const Variable& variable : outside) saved_outside.emplace_back(variable.value());
  const bool x_wanted = x.requires_grad();
  return record("checkpoint", y, inputs,
                [segment, outside, saved_outside, generator, x_wanted, saved = SavedTensor(x.value())](
                    const Tensor& dy, Gradients& out) {
                  for (const SavedTensor& variable : saved_outside) static_cast<void>(out.load(variable));
                  Variable input(out.load(saved));
                  input.set_requires_grad(x_wanted);
                  Variable again;
                  {
                    Restore<Generator> restore_generator(default_generator());
                    Restore<bool> restore_flag(recomputing);
                    const GradMode record_again(true);
                    default_generator() = generator;
                    recomputing = true;
                    again = segment(input);
                  }
                  std::vector<Variable> wanted{input};
                  wanted.insert(wanted.end(), outside.begin(), outside.end());
                  const std::vector<Tensor> gradients = grad(again, wanted, {.gradient = dy});
                  for (int i = 0; i < static_cast<int>(wanted.size()); ++i) {
                    if (!out.wanted(i)) continue;
                    const auto& gradient = gradients[static_cast<std::size_t>(i)];
                    const Variable& input_i = wanted[static_cast<std::size_t>(i)];
                    out.give(i, gradient.defined() ? gradient
                                                   : Tensor::zeros(input_i.shape(), input_i.dtype(),
                                                                   input_i.value().device()));
                  }
                });
}

}  // namespace brigade
