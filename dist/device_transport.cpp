// SPDX-License-Identifier: MIT
// dist/device_transport.cpp - every call goes one of two ways, by where its tensor lies.
#include "dist/device_transport.h"

#include <utility>

namespace brigade::dist {
namespace {

class DeviceTransport final : public Transport {
 public:
  DeviceTransport(std::unique_ptr<Transport> host, std::unique_ptr<Carrier> carrier, Device device,
                  std::string choice)
      : host_(std::move(host)),
        carrier_(std::move(carrier)),
        device_(device),
        name_(carrier_->name().empty() ? std::string(host_->name())
                                       : str(carrier_->name(), " beside ", host_->name())),
        choice_(std::move(choice)) {}

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  std::string_view name() const override { return name_; }
  Device device() const override { return device_; }
  std::string choice() const override { return choice_; }
  std::string why_not_captured() const override { return carrier_->why_not_captured(); }
  std::optional<std::string> failure() const override {
    auto found = carrier_->failure();
    return found ? found : host_->failure();
  }
  bool any_thread() const override { return host_->any_thread(); }

  void send(const Tensor& t, int to) override { is_ours(t) ? carrier_->send(t, to) : host_->send(t, to); }
  void recv(Tensor& t, int from) override { is_ours(t) ? carrier_->recv(t, from) : host_->recv(t, from); }
  void send_recv(const Tensor& sent, int to, Tensor& received, int from) override {
    is_ours(sent) ? carrier_->send_recv(sent, to, received, from)
                  : host_->send_recv(sent, to, received, from);
  }
  void broadcast(Tensor& t, int root) override {
    is_ours(t) ? carrier_->broadcast(t, root) : host_->broadcast(t, root);
  }
  void all_reduce(Tensor& t, Reduce op) override {
    is_ours(t) ? carrier_->all_reduce(t, op) : host_->all_reduce(t, op);
  }
  void reduce(Tensor& t, Reduce op, int root) override {
    is_ours(t) ? carrier_->reduce(t, op, root) : host_->reduce(t, op, root);
  }
  void reduce_scatter(const Tensor& t, Tensor& out, Reduce op) override {
    is_ours(t) ? carrier_->reduce_scatter(t, out, op) : host_->reduce_scatter(t, out, op);
  }
  void all_gather(const Tensor& t, Tensor& out) override {
    is_ours(t) ? carrier_->all_gather(t, out) : host_->all_gather(t, out);
  }
  void all_gather_control(const Tensor& t, Tensor& out) override { host_->all_gather_control(t, out); }
  void gather(const Tensor& t, Tensor& out, int root) override {
    is_ours(t) ? carrier_->gather(t, out, root) : host_->gather(t, out, root);
  }
  void scatter(const Tensor& t, Tensor& out, int root) override {
    is_ours(out) ? carrier_->scatter(t, out, root) : host_->scatter(t, out, root);
  }
  void all_to_all(const Tensor& t, Tensor& out) override {
    is_ours(t) ? carrier_->all_to_all(t, out) : host_->all_to_all(t, out);
  }
  void barrier() override { host_->barrier(); }
  void meet() override { host_->meet(); }
  Storage allocate_shared(std::int64_t bytes) override { return host_->allocate_shared(bytes); }
  void begin_step(std::int64_t step) override { host_->begin_step(step); }

  // The host's first: what it tells peers is the reason that they name.
  void abort(const std::string& reason) noexcept override {
    host_->abort(reason);
    carrier_->abort();
  }
  void report(const Progress& progress) noexcept override { host_->report(progress); }
  std::string arrivals() const override { return host_->arrivals(); }
  void close() override {
    carrier_->close();
    host_->close();
  }

 private:
  bool is_ours(const Tensor& t) const { return t.device() == device_; }

  const std::unique_ptr<Transport> host_;
  const std::unique_ptr<Carrier> carrier_;  // Behind the host's, which it may use.
  const Device device_;
  const std::string name_, choice_;
};

class LoneCarrier final : public Carrier {
 public:
  std::string name() const override { return ""; }
  std::string why_not_captured() const override { return ""; }
  void send(const Tensor&, int) override { fail("send: a group of one has no other rank"); }
  void recv(Tensor&, int) override { fail("recv: a group of one has no other rank"); }
  void send_recv(const Tensor& sent, int, Tensor& received, int) override { copy(sent, received); }
  void broadcast(Tensor&, int) override {}
  void all_reduce(Tensor&, Reduce) override {}
  void reduce(Tensor&, Reduce, int) override {}
  void reduce_scatter(const Tensor& t, Tensor& out, Reduce) override { copy(t, out); }
  void all_gather(const Tensor& t, Tensor& out) override { copy(t, out); }
  void gather(const Tensor& t, Tensor& out, int) override { copy(t, out); }
  void scatter(const Tensor& t, Tensor& out, int) override { copy(t, out); }
  void all_to_all(const Tensor& t, Tensor& out) override { copy(t, out); }

 private:
  static void copy(const Tensor& from, const Tensor& to) {
    if (from.raw() != to.raw()) runtime(to.device()).copy_on_device(to.raw(), from.raw(), from.bytes());
  }
};

}  // namespace

std::unique_ptr<Transport> make_device_transport(std::unique_ptr<Transport> host,
                                                 std::unique_ptr<Carrier> carrier, Device device,
                                                 std::string choice) {
  return std::make_unique<DeviceTransport>(std::move(host), std::move(carrier), device, std::move(choice));
}

std::unique_ptr<Carrier> make_lone_carrier() { return std::make_unique<LoneCarrier>(); }

}  // namespace brigade::dist
