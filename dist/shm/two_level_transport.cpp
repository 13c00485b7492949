// SPDX-License-Identifier: MIT
// dist/shm/two_level_transport.cpp - three transports that act as one.
#include "dist/shm/two_level_transport.h"

#include <utility>

#include "dist/reduce_buffers.h"

namespace brigade::dist {
namespace {

class TwoLevelTransport final : public Transport {
 public:
  explicit TwoLevelTransport(TwoLevels levels)
      : here_(std::move(levels.here)),
        across_(std::move(levels.across)),
        all_(std::move(levels.all)),
        name_(std::move(levels.name)),
        arrivals_(std::move(levels.arrivals)) {}

  void all_reduce(Tensor& t, Reduce op) override {
    Tensor sum = widened(t);
    // The division by the number of all ranks comes at the end.
    const Reduce in_parts = op == Reduce::mean ? Reduce::sum : op;
    here_->reduce(sum, in_parts, 0);
    if (across_) across_->all_reduce(sum, in_parts);
    here_->broadcast(sum, 0);
    finish(sum, t, op, size());
  }
  Storage allocate_shared(std::int64_t bytes) override { return here_->allocate_shared(bytes); }

  int rank() const override { return all_->rank(); }
  int size() const override { return all_->size(); }
  std::string_view name() const override { return name_; }
  void send(const Tensor& t, int to) override { all_->send(t, to); }
  void recv(Tensor& t, int from) override { all_->recv(t, from); }
  void send_recv(const Tensor& sent, int to, Tensor& received, int from) override {
    all_->send_recv(sent, to, received, from);
  }
  void broadcast(Tensor& t, int root) override { all_->broadcast(t, root); }
  void reduce(Tensor& t, Reduce op, int root) override { all_->reduce(t, op, root); }
  void reduce_scatter(const Tensor& t, Tensor& out, Reduce op) override { all_->reduce_scatter(t, out, op); }
  void all_gather(const Tensor& t, Tensor& out) override { all_->all_gather(t, out); }
  void all_gather_control(const Tensor& t, Tensor& out) override { all_->all_gather_control(t, out); }
  void gather(const Tensor& t, Tensor& out, int root) override { all_->gather(t, out, root); }
  void scatter(const Tensor& t, Tensor& out, int root) override { all_->scatter(t, out, root); }
  void all_to_all(const Tensor& t, Tensor& out) override { all_->all_to_all(t, out); }
  void barrier() override { all_->barrier(); }

  // The host's ranks only, where it costs next to nothing. The other one counts the call, for arrivals().
  void meet() override {
    all_->meet();
    here_->meet();
  }
  void begin_step(std::int64_t step) override { all_->begin_step(step); }
  void report(const Progress& progress) noexcept override {
    all_->report(progress);
    here_->report(progress);
  }
  std::string arrivals() const override { return arrivals_ ? arrivals_() : all_->arrivals(); }
  std::optional<std::string> failure() const override {
    const auto found = all_->failure();
    return found ? found : here_->failure();
  }
  void abort(const std::string& reason) noexcept override {
    all_->abort(reason);
    if (across_) across_->abort(reason);
    here_->abort(reason);  // Wakes the ranks of this host.
  }
  void close() override {
    if (across_) across_->close();
    here_->close();
    all_->close();
  }

 private:
  const std::unique_ptr<Transport> here_, across_, all_;
  const std::string name_;
  const std::function<std::string()> arrivals_;
};

}  // namespace

std::unique_ptr<Transport> make_two_level_transport(TwoLevels levels) {
  return std::make_unique<TwoLevelTransport>(std::move(levels));
}

}  // namespace brigade::dist
