// SPDX-License-Identifier: MIT
// data/prefetch.cpp - tickets in, batches out.
#include "data/prefetch.h"

#include <utility>

#include "core/parallel.h"

namespace brigade::data {

Prefetcher::Prefetcher(Make make, std::int64_t first, std::int64_t end, int threads, int depth)
    : make_(std::move(make)), end_(end), started_(first), taken_(first) {
  BRIGADE_CHECK(threads >= 0 && depth >= 1, "prefetcher: needs threads >= 0 and depth >= 1; got threads ",
                threads, ", depth ", depth);
  slots_.resize(static_cast<std::size_t>(depth));
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this](std::stop_token stop) { work(stop); });
}

void Prefetcher::work(std::stop_token stop) {
  mark_helper_thread();  // The compute thread owns the OpenMP pool.
  std::unique_lock lock(mutex_);
  const auto depth = static_cast<std::int64_t>(slots_.size());
  while (room_.wait(lock, stop, [&] { return started_ == end_ || started_ < taken_ + depth; })) {
    if (started_ == end_ || stop.stop_requested()) return;
    const std::int64_t ticket = started_++;
    lock.unlock();
    Slot made;
    try {
      made.batch = make_(ticket);
    } catch (...) {
      made.error = std::current_exception();
    }
    lock.lock();
    slots_[static_cast<std::size_t>(ticket % depth)] = std::move(made);
    made_.notify_one();
  }
}

std::optional<Batch> Prefetcher::next() {
  std::unique_lock lock(mutex_);
  if (taken_ == end_) return std::nullopt;
  if (threads_.empty()) {
    Batch batch = make_(taken_);
    ++taken_;
    return batch;
  }
  Slot& slot = slots_[static_cast<std::size_t>(taken_ % static_cast<std::int64_t>(slots_.size()))];
  made_.wait(lock, [&] { return slot.batch || slot.error; });
  if (slot.error) std::rethrow_exception(slot.error);  // taken_ stays: the next call meets it again.
  std::optional<Batch> batch = std::exchange(slot.batch, std::nullopt);
  ++taken_;
  room_.notify_all();
  return batch;
}

}  // namespace brigade::data
