// SPDX-License-Identifier: MIT
// dist/staged/staged_carrier.cpp - down, over, up, chunk by chunk.
#include "dist/staged/staged_carrier.h"

#include <algorithm>
#include <array>
#include <utility>

namespace brigade::dist {
namespace {

// Pinned memory that chunks pass through, and when the device is done with it.
struct Slot {
  Storage memory;
  Event free;  // The copy up of the chunk before has been read from it.
  Event full;  // The copy down has arrived.
};

class StagedCarrier final : public Carrier {
 public:
  StagedCarrier(Transport& host, Device device, std::int64_t chunk_bytes)
      : host_(host), device_(device), chunk_bytes_(chunk_bytes) {
    BRIGADE_CHECK(chunk_bytes >= kAlignment && chunk_bytes % kAlignment == 0,
                  "staged: a chunk must have a multiple of ", kAlignment, " bytes; got ", chunk_bytes);
  }

  std::string name() const override { return "pinned host memory"; }
  std::string why_not_captured() const override {
    return "here the host copies tensors of ranks through pinned memory";
  }

  void send(const Tensor& t, int to) override {
    in_chunks(t, Way::down, [&](Tensor& chunk) { host_.send(chunk, to); });
  }
  void recv(Tensor& t, int from) override {
    in_chunks(t, Way::up, [&](Tensor& chunk) { host_.recv(chunk, from); });
  }
  void send_recv(const Tensor& sent, int to, Tensor& received, int from) override {
    whole(sent, received, [&](const Tensor& s, Tensor& r) { host_.send_recv(s, to, r, from); });
  }
  void broadcast(Tensor& t, int root) override {
    in_chunks(t, host_.rank() == root ? Way::down : Way::up,
              [&](Tensor& chunk) { host_.broadcast(chunk, root); });
  }
  void all_reduce(Tensor& t, Reduce op) override {
    in_chunks(t, Way::both, [&](Tensor& chunk) { host_.all_reduce(chunk, op); });
  }
  void reduce(Tensor& t, Reduce op, int root) override {
    in_chunks(t, host_.rank() == root ? Way::both : Way::down,
              [&](Tensor& chunk) { host_.reduce(chunk, op, root); });
  }
  // The rest moves blocks by rank: a chunk of each would be as many small copies.
  void reduce_scatter(const Tensor& t, Tensor& out, Reduce op) override {
    whole(t, out, [&](const Tensor& from, Tensor& to) { host_.reduce_scatter(from, to, op); });
  }
  void all_gather(const Tensor& t, Tensor& out) override {
    whole(t, out, [&](const Tensor& from, Tensor& to) { host_.all_gather(from, to); });
  }
  void gather(const Tensor& t, Tensor& out, int root) override {
    whole(t, host_.rank() == root ? out : Tensor(),
          [&](const Tensor& from, Tensor& to) { host_.gather(from, to, root); });
  }
  void scatter(const Tensor& t, Tensor& out, int root) override {
    whole(host_.rank() == root ? t : Tensor(), out,
          [&](const Tensor& from, Tensor& to) { host_.scatter(from, to, root); });
  }
  void all_to_all(const Tensor& t, Tensor& out) override {
    whole(t, out, [&](const Tensor& from, Tensor& to) { host_.all_to_all(from, to); });
  }

 private:
  enum class Way { down, up, both };

  Stream& stream() { return runtime(device_).current_stream(); }

  // over(chunk) for all chunks of t in order. Three of them are under way: one comes down, one is with the host, one
  // goes up. The device copies in the order of its stream, so a copy up is enqueued behind the next one down.
  template <class Over>
  void in_chunks(const Tensor& t, Way way, const Over& over) {
    const std::int64_t bytes = t.bytes(), count = (bytes + chunk_bytes_ - 1) / chunk_bytes_;
    if (count == 0) {  // Nothing to copy, but ranks meet.
      Tensor none = Tensor::empty({0}, t.dtype());
      return over(none);
    }
    const auto length = [&](std::int64_t k) { return std::min(chunk_bytes_, bytes - k * chunk_bytes_); };
    const auto start = [&](std::int64_t k) {
      Slot& slot = slots_[static_cast<std::size_t>(k) % slots_.size()];
      grow(slot, length(k));
      slot.free.wait();
      if (way == Way::up) return;
      runtime(device_).copy_to_pinned(slot.memory.data(), t.raw() + k * chunk_bytes_, length(k));
      slot.full = stream().record();
    };
    start(0);
    for (std::int64_t k = 0; k < count; ++k) {
      if (k + 1 < count) start(k + 1);
      Slot& slot = slots_[static_cast<std::size_t>(k) % slots_.size()];
      std::exchange(slot.full, Event()).wait();
      Tensor chunk = Tensor::over(slot.memory.slice(0, length(k)), {length(k) / t.item_bytes()}, t.dtype());
      over(chunk);
      if (way == Way::down) continue;
      runtime(device_).copy_from_pinned(t.raw() + k * chunk_bytes_, slot.memory.data(), length(k));
      slot.free = stream().record();
    }
  }

  // over(copy of from, copy of to): undefined tensors stay so.
  template <class Over>
  void whole(const Tensor& from, const Tensor& to, const Over& over) {
    const auto host_copy = [this](Slot& slot, const Tensor& t) {
      if (!t.defined()) return Tensor();
      grow(slot, t.bytes());
      slot.free.wait();
      return Tensor::over(slot.memory.slice(0, t.bytes()), {t.numel()}, t.dtype());
    };
    const Tensor sent = host_copy(whole_[0], from);
    Tensor received = host_copy(whole_[1], to);
    if (sent.defined()) {
      runtime(device_).copy_to_pinned(sent.raw(), from.raw(), from.bytes());
      stream().record().wait();
    }
    over(sent, received);
    if (!received.defined()) return;
    runtime(device_).copy_from_pinned(to.raw(), received.raw(), to.bytes());
    whole_[1].free = stream().record();
  }

  // Pinned memory is dear to make: it is kept, at the largest size that was asked for.
  void grow(Slot& slot, std::int64_t bytes) {
    if (slot.memory && slot.memory.bytes() >= bytes) return;
    slot.free.wait();
    slot.memory = runtime(device_).allocate_pinned(std::max(bytes, kAlignment));
  }

  Transport& host_;
  const Device device_;
  const std::int64_t chunk_bytes_;
  std::array<Slot, 3> slots_;
  std::array<Slot, 2> whole_;
};

}  // namespace

std::unique_ptr<Carrier> make_staged_carrier(Transport& host, Device device, std::int64_t chunk_bytes) {
  return std::make_unique<StagedCarrier>(host, device, chunk_bytes);
}

}  // namespace brigade::dist
