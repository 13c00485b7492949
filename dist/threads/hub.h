// SPDX-License-Identifier: MIT
// dist/threads/hub.h - where n ranks of one process meet. All of dist/threads' synchronisation is in here.
// Read before: dist/transport.h. Read next: dist/threads/thread_transport.cpp.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dist/transport.h"

namespace brigade::dist {

/// Shared by the n transports of a group; thread-safe.
class Hub {
 public:
  explicit Hub(int size);

  int size() const { return size_; }

  /// What a rank shows its peers during one collective. Either pointer may be null.
  struct Offer {
    const std::byte* in = nullptr;  ///< Peers read here.
    std::byte* out = nullptr;       ///< Peers write here.
    std::int64_t bytes = 0;         ///< Must be the same on all ranks.
  };

  /// Collective. Waits until all ranks have come, runs `move(offers by rank)` on all of them at once, and
  /// returns when all have finished. `move` must neither throw nor wait, and ranks must write to disjoint
  /// places. Throws CommError if the group is aborted before all ranks have come; after that an abort waits
  /// for the end: no rank can leave, and free its memory, while a peer still moves bytes there.
  void meet(int rank, const Offer& offer, const std::function<void(std::span<const Offer>)>& move);

  /// Puts a copy of `t` into the mailbox from -> to. Does not wait.
  void put(int from, int to, const Tensor& t);
  /// Waits for the next message from -> to. CommError if it differs in dtype or
  /// size, or if the group is aborted.
  void take(int from, int to, Tensor& t);

  void abort(const std::string& reason);
  std::optional<std::string> aborted() const;
  void report(int rank, const Progress& progress);
  /// Who has come to the meeting, or whose message `rank` waits for.
  std::string arrivals(int rank) const;

 private:
  struct Message {
    DType dtype;
    std::vector<std::byte> bytes;
  };
  using Lock = std::unique_lock<std::mutex>;
  void check_alive() const;
  void arrive(Lock& lock, int rank, bool may_abort);
  // Until done(), or the thread's WaitLimit: TimedOut.
  template <class Done>
  void wait(Lock& lock, const Done& done);
  std::deque<Message>& mailbox(int from, int to) {
    return mailboxes_[static_cast<std::size_t>(from * size_ + to)];
  }

  const int size_;
  const bool has_cores_;  // All ranks can run at the same time.
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::string> aborted_;
  // The meeting: every meet() passes two gates, one before and one after the bytes move.
  std::vector<Offer> offers_;
  std::vector<bool> arrived_;  // At the current gate.
  int arrived_count_ = 0;
  alignas(64) std::atomic<std::uint64_t> gate_ = 0;  // Gates opened so far.
  std::vector<std::deque<Message>> mailboxes_;
  std::vector<int> receives_from_;  // By rank: whom take() waits for, or -1.
  std::vector<Progress> progress_;  // By rank: what it last reported.
};

}  // namespace brigade::dist
