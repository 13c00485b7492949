// SPDX-License-Identifier: MIT
// dist/threads/hub.cpp - two gates and a mailbox per pair of ranks.
#include "dist/threads/hub.h"

#include <algorithm>
#include <cstring>

#include "core/parallel.h"
#include "dist/spin.h"
#include "dist/work.h"

namespace brigade::dist {

Hub::Hub(int size)
    : size_(size),
      has_cores_(available_cores() >= size),
      offers_(static_cast<std::size_t>(size)),
      arrived_(static_cast<std::size_t>(size), false),
      mailboxes_(static_cast<std::size_t>(size) * static_cast<std::size_t>(size)),
      receives_from_(static_cast<std::size_t>(size), -1),
      progress_(static_cast<std::size_t>(size)) {}

void Hub::check_alive() const {
  if (aborted_) throw CommError(*aborted_);
}

template <class Done>
void Hub::wait(Lock& lock, const Done& done) {
  const auto deadline = WaitLimit::deadline();
  if (deadline == Clock::time_point::max())  // wait_until(max) overflows inside libstdc++.
    changed_.wait(lock, done);
  else if (!changed_.wait_until(lock, deadline, done))
    throw TimedOut();
}

// The last to arrive opens the gate for all. An open gate is looked at before an abort: if it opened, all
// ranks pass it, so that either all of them move bytes or none.
void Hub::arrive(Lock& lock, int rank, bool may_abort) {
  const std::uint64_t before = gate_;
  arrived_[static_cast<std::size_t>(rank)] = true;
  if (++arrived_count_ == size_) {
    arrived_count_ = 0;
    std::fill(arrived_.begin(), arrived_.end(), false);
    ++gate_;
    changed_.notify_all();
    return;
  }
  const auto open = [&] { return gate_ != before; };
  if (has_cores_) {
    lock.unlock();
    static_cast<void>(comes_soon(open));
    lock.lock();
  }
  if (!may_abort)
    changed_.wait(lock, open);
  else
    wait(lock, [&] { return open() || aborted_; });
  if (!open()) check_alive();
}

void Hub::meet(int rank, const Offer& offer, const std::function<void(std::span<const Offer>)>& move) {
  bool alike = true;
  std::string sizes;
  {
    Lock lock(mutex_);
    check_alive();
    offers_[static_cast<std::size_t>(rank)] = offer;
    arrive(lock, rank, true);
    for (const Offer& other : offers_) alike = alike && other.bytes == offer.bytes;
    if (!alike)
      for (const Offer& other : offers_) sizes += str(sizes.empty() ? "" : ", ", other.bytes);
  }
  // Without the lock: offers_ does not change until all ranks are through the second gate.
  if (alike) move(offers_);
  {
    Lock lock(mutex_);
    arrive(lock, rank, false);
  }
  if (!alike) throw CommError(str("the ranks came with tensors of different sizes: ", sizes, " bytes"));
}

void Hub::put(int from, int to, const Tensor& t) {
  Message message{t.dtype(), std::vector<std::byte>(t.raw(), t.raw() + t.bytes())};
  Lock lock(mutex_);
  check_alive();
  mailbox(from, to).push_back(std::move(message));
  changed_.notify_all();
}

void Hub::take(int from, int to, Tensor& t) {
  Message message;
  {
    Lock lock(mutex_);
    int& waits_for = receives_from_[static_cast<std::size_t>(to)];
    waits_for = from;
    wait(lock, [&] { return !mailbox(from, to).empty() || aborted_; });
    waits_for = -1;
    check_alive();
    message = std::move(mailbox(from, to).front());
    mailbox(from, to).pop_front();
  }
  const auto bytes = static_cast<std::int64_t>(message.bytes.size());
  if (message.dtype != t.dtype() || bytes != t.bytes())
    throw CommError(str("rank ", from, " sent ", message.dtype, " x ", bytes / size_of(message.dtype),
                        ", rank ", to, " receives ", t.dtype(), " x ", t.numel()));
  if (bytes > 0) std::memcpy(t.raw(), message.bytes.data(), message.bytes.size());
}

void Hub::abort(const std::string& reason) {
  Lock lock(mutex_);
  if (!aborted_) aborted_ = reason;
  changed_.notify_all();
}

std::optional<std::string> Hub::aborted() const {
  Lock lock(mutex_);
  return aborted_;
}

void Hub::report(int rank, const Progress& progress) {
  Lock lock(mutex_);
  progress_[static_cast<std::size_t>(rank)] = progress;
}

std::string Hub::arrivals(int rank) const {
  Lock lock(mutex_);
  const int from = receives_from_[static_cast<std::size_t>(rank)];
  if (from >= 0) return str("waiting for a message from rank ", from);
  return describe_arrivals(arrived_, progress_);
}

}  // namespace brigade::dist
