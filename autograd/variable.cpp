// SPDX-License-Identifier: MIT
// autograd/variable.cpp - the state of a variable: value, gradient, hooks.
#include "autograd/variable.h"

#include <utility>

#include "autograd/no_grad.h"
#include "autograd/node.h"
#include "kernels/ops.h"

namespace brigade {
namespace {

thread_local bool grad_enabled_here = true;

// Throws unless `memory` can stand in for a tensor like `like`.
void check_memory(std::string_view what, const Tensor& memory, const Tensor& like) {
  BRIGADE_CHECK(memory.defined() && memory.shape() == like.shape() && memory.dtype() == like.dtype(), what,
                ": memory must be ", like, "; got ", memory);
}

}  // namespace

bool grad_enabled() { return grad_enabled_here; }
void set_grad_enabled(bool enabled) { grad_enabled_here = enabled; }

std::uint64_t& GraphLabel::current() {
  thread_local std::uint64_t bits = 0;
  return bits;
}

Variable::Variable(Tensor value) : impl_(std::make_shared<Impl>()) {
  BRIGADE_CHECK(value.defined(), "variable: needs a defined tensor");
  impl_->value = std::move(value);
}

Variable Variable::parameter(Tensor value) {
  Variable leaf(std::move(value));
  leaf.set_requires_grad(true);
  return leaf;
}

const Tensor& Variable::value() const {
  BRIGADE_CHECK(defined(), "variable: undefined");
  return impl_->value;
}

bool Variable::requires_grad() const { return defined() && impl_->requires_grad; }
bool Variable::is_leaf() const { return defined() && !impl_->node; }

void Variable::set_requires_grad(bool required) {
  BRIGADE_CHECK(is_leaf(), "set_requires_grad: only for leaves; this variable is the result of ",
                defined() ? impl_->node->op : "nothing");
  BRIGADE_CHECK(!required || is_floating(dtype()), "set_requires_grad: needs a floating dtype; got ",
                dtype());
  impl_->requires_grad = required;
}

Variable Variable::detach() const { return Variable(value()); }

Tensor Variable::grad() const { return impl_->grad_present ? impl_->grad : Tensor(); }

void Variable::zero_grad() {
  impl_->grad_present = false;
  if (!impl_->grad_bound) impl_->grad = Tensor();
}

void Variable::set_grad_present(bool present) {
  BRIGADE_CHECK(!present || impl_->grad.defined(), "set_grad_present: this variable has no gradient memory");
  impl_->grad_present = present;
}

void Variable::bind_value(Tensor memory) {
  check_memory("bind_value", memory, value());
  ops::copy_(memory, impl_->value);
  impl_->value = std::move(memory);
}

void Variable::bind_grad(Tensor memory) {
  BRIGADE_CHECK(is_leaf(), "bind_grad: only for leaves");
  check_memory("bind_grad", memory, value());
  if (impl_->grad_present) ops::copy_(memory, impl_->grad);
  impl_->grad = std::move(memory);
  impl_->grad_bound = true;
}

Tensor Variable::grad_memory() const { return impl_->grad_bound ? impl_->grad : Tensor(); }

HookHandle Variable::register_hook(std::function<Tensor(const Tensor&)> hook) {
  BRIGADE_CHECK(requires_grad(), "register_hook: this variable requires no gradient");
  return (impl_->node ? impl_->node->hooks : impl_->hooks).add(std::move(hook));
}

HookHandle Variable::register_post_accumulate_hook(std::function<void(Variable&)> hook) {
  BRIGADE_CHECK(is_leaf() && requires_grad(),
                "register_post_accumulate_hook: only for leaves that require a gradient");
  return impl_->post_accumulate_hooks.add(std::move(hook));
}

void Variable::set_observer(std::weak_ptr<BackwardObserver> observer) {
  BRIGADE_CHECK(is_leaf(), "set_observer: only for leaves");
  impl_->observer = std::move(observer);
}

bool Variable::has_observer() const { return defined() && !impl_->observer.expired(); }

}  // namespace brigade
