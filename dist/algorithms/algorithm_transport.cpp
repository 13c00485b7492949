// SPDX-License-Identifier: MIT
// dist/algorithms/algorithm_transport.cpp - the table of algorithms, and a transport that uses one of them.
#include <array>
#include <utility>

#include "dist/algorithms/algorithms.h"
#include "dist/reduce_buffers.h"

namespace brigade::dist {
namespace {

constexpr std::array kAlgorithms{
    Algorithm{"naive", naive_all_reduce},
    Algorithm{"tree", tree_all_reduce},
    Algorithm{"ring", ring_all_reduce},
    Algorithm{"halving_doubling", halving_doubling_all_reduce},
};

class AlgorithmTransport final : public Transport {
 public:
  AlgorithmTransport(std::unique_ptr<Transport> inner, AllReduceSteps steps)
      : inner_(std::move(inner)), steps_(steps) {}

  void all_reduce(Tensor& t, Reduce op) override { dist::all_reduce(steps_, *inner_, t, op); }

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string_view name() const override { return inner_->name(); }
  bool any_thread() const override { return inner_->any_thread(); }
  std::optional<std::string> failure() const override { return inner_->failure(); }
  void send(const Tensor& t, int to) override { inner_->send(t, to); }
  void recv(Tensor& t, int from) override { inner_->recv(t, from); }
  void send_recv(const Tensor& sent, int to, Tensor& received, int from) override {
    inner_->send_recv(sent, to, received, from);
  }
  void broadcast(Tensor& t, int root) override { inner_->broadcast(t, root); }
  void reduce(Tensor& t, Reduce op, int root) override { inner_->reduce(t, op, root); }
  void reduce_scatter(const Tensor& t, Tensor& out, Reduce op) override {
    inner_->reduce_scatter(t, out, op);
  }
  void all_gather(const Tensor& t, Tensor& out) override { inner_->all_gather(t, out); }
  void gather(const Tensor& t, Tensor& out, int root) override { inner_->gather(t, out, root); }
  void scatter(const Tensor& t, Tensor& out, int root) override { inner_->scatter(t, out, root); }
  void all_to_all(const Tensor& t, Tensor& out) override { inner_->all_to_all(t, out); }
  void barrier() override { inner_->barrier(); }
  void all_gather_control(const Tensor& t, Tensor& out) override { inner_->all_gather_control(t, out); }
  void meet() override { inner_->meet(); }
  Storage allocate_shared(std::int64_t bytes) override { return inner_->allocate_shared(bytes); }
  void begin_step(std::int64_t step) override { inner_->begin_step(step); }
  void abort(const std::string& reason) noexcept override { inner_->abort(reason); }
  void report(const Progress& progress) noexcept override { inner_->report(progress); }
  std::string arrivals() const override { return inner_->arrivals(); }
  void close() override { inner_->close(); }

 private:
  std::unique_ptr<Transport> inner_;
  AllReduceSteps steps_;
};

}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

const Algorithm& find_algorithm(std::string_view name) {
  std::string choices;
  for (const Algorithm& algorithm : kAlgorithms) {
    if (algorithm.name == name) return algorithm;
    choices += str(choices.empty() ? "" : ", ", algorithm.name);
  }
  fail(str("algorithm: must be a known name; got \"", name, "\"; choose from auto, ", choices));
}

void all_reduce(AllReduceSteps steps, Transport& transport, Tensor& t, Reduce op) {
  Tensor sum = widened(t);
  const std::int64_t begin = sum.raw() - sum.storage().data();
  Tensor flat = Tensor::over(sum.storage().slice(begin, sum.bytes()), {sum.numel()}, sum.dtype());
  steps(transport, flat, op);
  finish(sum, t, op, transport.size());
}

std::unique_ptr<Transport> make_algorithm_transport(std::unique_ptr<Transport> inner,
                                                    const Algorithm& algorithm) {
  return std::make_unique<AlgorithmTransport>(std::move(inner), algorithm.steps);
}

}  // namespace brigade::dist
