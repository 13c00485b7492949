// SPDX-License-Identifier: MIT
// dist/ready_order.cpp - one watched backward, and everything as before.
#include "dist/ready_order.h"

#include <algorithm>
#include <memory>

#include "core/rng.h"
#include "kernels/ops.h"

namespace brigade::dist {
namespace {

class Watcher final : public BackwardObserver {
 public:
  explicit Watcher(std::vector<Variable> trainable) : trainable_(std::move(trainable)) {}

  void before_backward(const BackwardStart&) override {}
  void grad_ready(const Variable& leaf) override {
    const auto found = std::find(trainable_.begin(), trainable_.end(), leaf);
    add(static_cast<int>(found - trainable_.begin()));
  }
  void after_backward() override {}

  // What was seen, then the rest.
  std::vector<int> order() {
    for (int i = static_cast<int>(trainable_.size()) - 1; i >= 0; --i) add(i);
    return order_;
  }

 private:
  void add(int index) {
    if (std::find(order_.begin(), order_.end(), index) == order_.end()) order_.push_back(index);
  }

  std::vector<Variable> trainable_;
  std::vector<int> order_;
};

// Puts back what a forward and backward change beside parameters' values, when the scope ends.
class Rehearsal {
 public:
  Rehearsal(std::vector<Variable> trainable, const std::vector<nn::NamedBuffer>& buffers,
            const std::shared_ptr<Watcher>& watcher)
      : trainable_(std::move(trainable)), generator_(default_generator()) {
    for (const nn::NamedBuffer& buffer : buffers)
      buffers_.push_back({buffer.tensor, ops::clone(buffer.tensor)});
    for (Variable& variable : trainable_) variable.set_observer(watcher);
  }
  ~Rehearsal() {
    default_generator() = generator_;
    for (Buffer& buffer : buffers_) ops::copy_(buffer.tensor, buffer.before);
    for (Variable& variable : trainable_) {
      variable.set_observer({});
      variable.zero_grad();
    }
  }
  Rehearsal(const Rehearsal&) = delete;
  Rehearsal& operator=(const Rehearsal&) = delete;

 private:
  struct Buffer {
    Tensor tensor, before;
  };
  std::vector<Variable> trainable_;
  std::vector<Buffer> buffers_;
  Generator generator_;
};

}  // namespace

std::vector<int> observe_ready_order(const std::vector<nn::NamedParameter>& parameters,
                                     const std::vector<nn::NamedBuffer>& buffers, ProcessGroup& group,
                                     const std::function<void()>& forward_and_backward) {
  std::vector<Variable> trainable;
  for (const nn::NamedParameter& p : parameters) {
    BRIGADE_CHECK(!p.variable.has_observer(), "observe_ready_order: parameter \"", p.name,
                  "\" belongs to a Ddp already; observe before wrapping");
    if (p.variable.requires_grad()) trainable.push_back(p.variable);
  }
  const auto watcher = std::make_shared<Watcher>(trainable);
  {
    const Rehearsal scope(trainable, buffers, watcher);
    forward_and_backward();
  }
  Tensor order = Tensor::from(watcher->order(), {static_cast<std::int64_t>(trainable.size())});
  group.broadcast(order, 0, "order of readiness").wait();
  return order.to_vector<int>();
}

}  // namespace brigade::dist
