// SPDX-License-Identifier: MIT
// dist/threads/thread_transport.cpp - collectives on shared memory. Each is one Hub::meet(): the ranks show
// their pointers, all copy or reduce their own part, all leave.
#include "dist/threads/thread_transport.h"

#include <cstring>
#include <utility>
#include <vector>

#include "dist/reduce_buffers.h"
#include "dist/threads/hub.h"

namespace brigade::dist {
namespace {

using Offer = Hub::Offer;
using Offers = std::span<const Offer>;

void copy_bytes(std::byte* to, const std::byte* from, std::int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return hub_->size(); }
  std::string_view name() const override { return "threads"; }
  bool any_thread() const override { return true; }

  // put() copies and never waits, so send_recv cannot deadlock.
  void send(const Tensor& t, int to) override { hub_->put(rank_, to, t); }
  void recv(Tensor& t, int from) override { hub_->take(from, rank_, t); }
  void send_recv(const Tensor& sent, int to, Tensor& received, int from) override {
    send(sent, to);
    recv(received, from);
  }

  void broadcast(Tensor& t, int root) override {
    meet({t.raw(), nullptr, t.bytes()},
         [&](Offers offers) { copy_bytes(t.raw(), at(offers, root).in, t.bytes()); });
  }

  void all_reduce(Tensor& t, Reduce op) override {
    meet({t.raw(), t.raw(), t.bytes()},
         [&](Offers offers) { reduce_slice(offers, t, op, [](int) { return true; }); });
  }

  void reduce(Tensor& t, Reduce op, int root) override {
    meet({t.raw(), t.raw(), t.bytes()},
         [&](Offers offers) { reduce_slice(offers, t, op, [root](int rank) { return rank == root; }); });
  }

  void reduce_scatter(const Tensor& t, Tensor& out, Reduce op) override {
    meet({t.raw(), nullptr, t.bytes()}, [&](Offers offers) {
      std::vector<const std::byte*> sources;
      for (const Offer& offer : offers) sources.push_back(offer.in + rank_ * out.bytes());
      std::byte* const target = out.raw();
      reduce_buffers(sources, {&target, 1}, t.dtype(), out.numel(), op);
    });
  }

  void all_gather(const Tensor& t, Tensor& out) override {
    meet({t.raw(), nullptr, t.bytes()}, [&](Offers offers) {
      for (int r = 0; r < size(); ++r) copy_bytes(out.raw() + r * t.bytes(), at(offers, r).in, t.bytes());
    });
  }

  void gather(const Tensor& t, Tensor& out, int root) override {
    std::byte* const target = rank_ == root ? out.raw() : nullptr;
    meet({t.raw(), target, t.bytes()},
         [&](Offers offers) { copy_bytes(at(offers, root).out + rank_ * t.bytes(), t.raw(), t.bytes()); });
  }

  void scatter(const Tensor& t, Tensor& out, int root) override {
    const std::byte* const source = rank_ == root ? t.raw() : nullptr;
    meet({source, nullptr, out.bytes()}, [&](Offers offers) {
      copy_bytes(out.raw(), at(offers, root).in + rank_ * out.bytes(), out.bytes());
    });
  }

  void all_to_all(const Tensor& t, Tensor& out) override {
    const std::int64_t block = t.bytes() / size();
    meet({t.raw(), nullptr, t.bytes()}, [&](Offers offers) {
      for (int r = 0; r < size(); ++r)
        copy_bytes(out.raw() + r * block, at(offers, r).in + rank_ * block, block);
    });
  }

  void barrier() override {
    meet({}, [](Offers) {});
  }

  // One gate more on memory that all ranks share.
  void meet() override { barrier(); }
  void report(const Progress& progress) noexcept override { hub_->report(rank_, progress); }
  void abort(const std::string& reason) noexcept override { hub_->abort(reason); }
  std::string arrivals() const override { return hub_->arrivals(rank_); }
  std::optional<std::string> failure() const override { return hub_->aborted(); }
  void close() override { barrier(); }

 private:
  template <class Move>
  void meet(const Offer& offer, const Move& move) {
    hub_->meet(rank_, offer, move);
  }

  static const Offer& at(Offers offers, int rank) { return offers[static_cast<std::size_t>(rank)]; }

  // Reduces this rank's slice of all tensors and writes it to those ranks that want the result. Sources are
  // in rank order, whoever does the work: the result does not depend on timing, and is the same everywhere.
  template <class Wants>
  void reduce_slice(Offers offers, const Tensor& t, Reduce op, const Wants& wants) {
    // Slices end at cache lines, so that two ranks never write to the same one.
    const std::int64_t line = kAlignment / t.item_bytes();
    const auto cut = [&](std::int64_t k) {
      return k == size() ? t.numel() : t.numel() * k / size() / line * line;
    };
    const std::int64_t begin = cut(rank_), end = cut(rank_ + 1);
    std::vector<const std::byte*> sources;
    std::vector<std::byte*> outs;
    for (int r = 0; r < size(); ++r) {
      sources.push_back(at(offers, r).in + begin * t.item_bytes());
      if (wants(r)) outs.push_back(at(offers, r).out + begin * t.item_bytes());
    }
    reduce_buffers(sources, outs, t.dtype(), end - begin, op);
  }

  std::shared_ptr<Hub> hub_;
  int rank_;
};

}  // namespace

std::shared_ptr<Hub> make_hub(int size) { return std::make_shared<Hub>(size); }

std::unique_ptr<Transport> make_thread_transport(std::shared_ptr<Hub> hub, int rank) {
  return std::make_unique<ThreadTransport>(std::move(hub), rank);
}

}  // namespace brigade::dist
