// SPDX-License-Identifier: MIT
// dist/emulated/emulated_transport.cpp - every collective is: meet, move the bytes, sleep until the model's time.
#include "dist/emulated/emulated_transport.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "core/stream.h"

namespace brigade::dist {
namespace {

class EmulatedTransport final : public Transport {
 public:
  EmulatedTransport(std::unique_ptr<Transport> inner, NetworkModel model)
      : inner_(std::move(inner)),
        model_(std::move(model)),
        name_(str(inner_->name(), " behind an emulated network")) {
    for (const auto& [rank, fraction] : model_.slow_ranks)
      BRIGADE_CHECK(rank >= 0 && rank < size(), "emulated network: the slow rank must be one of ", size(),
                    "; got ", rank);
  }

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string_view name() const override { return name_; }
  std::optional<std::string> failure() const override { return inner_->failure(); }
  void meet() override { inner_->meet(); }
  Storage allocate_shared(std::int64_t bytes) override { return inner_->allocate_shared(bytes); }
  void begin_step(std::int64_t step) override { step_ = step; }

  // Between two ranks each side's link is busy for the time of the message.
  void send(const Tensor& t, int to) override {
    paced("send", t.bytes(), [&] { inner_->send(t, to); });
  }
  void recv(Tensor& t, int from) override {
    paced("recv", t.bytes(), [&] { inner_->recv(t, from); });
  }
  void send_recv(const Tensor& sent, int to, Tensor& received, int from) override {
    paced("send_recv", std::max(sent.bytes(), received.bytes()),
          [&] { inner_->send_recv(sent, to, received, from); });
  }

  void broadcast(Tensor& t, int root) override {
    together("broadcast", t.bytes(), [&] { inner_->broadcast(t, root); });
  }
  void all_reduce(Tensor& t, Reduce op) override {
    together("all_reduce", t.bytes(), [&] { inner_->all_reduce(t, op); });
  }
  void reduce(Tensor& t, Reduce op, int root) override {
    together("reduce", t.bytes(), [&] { inner_->reduce(t, op, root); });
  }
  void reduce_scatter(const Tensor& t, Tensor& out, Reduce op) override {
    together("reduce_scatter", t.bytes(), [&] { inner_->reduce_scatter(t, out, op); });
  }
  void all_gather(const Tensor& t, Tensor& out) override {
    together("all_gather", out.bytes(), [&] { inner_->all_gather(t, out); });
  }
  void all_gather_control(const Tensor& t, Tensor& out) override { inner_->all_gather_control(t, out); }
  void gather(const Tensor& t, Tensor& out, int root) override {
    together("gather", t.bytes() * size(), [&] { inner_->gather(t, out, root); });
  }
  void scatter(const Tensor& t, Tensor& out, int root) override {
    together("scatter", out.bytes() * size(), [&] { inner_->scatter(t, out, root); });
  }
  void all_to_all(const Tensor& t, Tensor& out) override {
    together("all_to_all", t.bytes(), [&] { inner_->all_to_all(t, out); });
  }
  void barrier() override {
    together("barrier", 0, [&] { inner_->barrier(); });
  }

  void abort(const std::string& reason) noexcept override { inner_->abort(reason); }
  void report(const Progress& progress) noexcept override { inner_->report(progress); }
  std::string arrivals() const override { return inner_->arrivals(); }
  void close() override { inner_->close(); }

 private:
  template <class Move>
  void paced(std::string_view collective, std::int64_t bytes, const Move& move) {
    const auto done = Clock::now() + model_.time(collective, bytes, size(), step_, sequence_++);
    move();
    std::this_thread::sleep_until(done);
  }

  template <class Move>
  void together(std::string_view collective, std::int64_t bytes, const Move& move) {
    if (size() > 1) inner_->barrier();  // The wire cannot start before the last rank has come.
    paced(collective, bytes, move);
  }

  std::unique_ptr<Transport> inner_;
  NetworkModel model_;
  std::string name_;
  std::int64_t step_ = 0, sequence_ = 0;
};

}  // namespace

std::unique_ptr<Transport> make_emulated_transport(std::unique_ptr<Transport> inner, NetworkModel model) {
  return std::make_unique<EmulatedTransport>(std::move(inner), std::move(model));
}

}  // namespace brigade::dist
