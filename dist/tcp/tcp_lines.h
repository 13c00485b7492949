// SPDX-License-Identifier: MIT
// dist/tcp/tcp_lines.h - messages between ranks over sockets, any number at once, and what ranks say about the group
// beside them. Read before: dist/tcp/meeting_point.h. User: dist/tcp/tcp_transport.cpp.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dist/tcp/meeting_point.h"
#include "dist/transport.h"

namespace brigade::dist {

/// A message under way: a header and the bytes of `t`, which must live until it is over.
struct TcpMessage {
  enum class Way : std::uint8_t { out, in } way;
  int peer;
  Tensor t;
  struct Header {
    std::int64_t count = 0, dtype = 0;
  } header = {};
  std::int64_t done = 0;  // Bytes of both.
};

/// One process's connections. One thread at a time exchanges; the rest may come from any.
class TcpLines {
 public:
  TcpLines(TcpPeers peers, int rank);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }

  /// Sends and receives all of them, in whatever order they can be; at most one of each way and peer. Blocks, asleep.
  /// CommError when a rank is lost, the group was ended, or a message has another dtype or size; TimedOut.
  void exchange(std::span<TcpMessage> messages);

  /// "arrived: ranks 0, 2; missing: rank 1": from whom something has come of what this rank waits for. Nothing if it
  /// waits for nobody.
  std::optional<std::string> arrivals() const;
  /// Reads what others have said: why the group is over, if it is.
  std::optional<std::string> failure();
  void abort(const std::string& reason) noexcept;
  /// This rank ends in order: that its connections close means no harm from now on.
  void leave();

 private:
  struct Word;
  bool move(TcpMessage& message);
  void wait(std::span<TcpMessage> messages);
  void listen(int peer);
  [[noreturn]] void lost(int peer);
  void check_alive();

  const TcpPeers peers_;
  const int rank_;
  const Descriptor wake_;  // An eventfd: abort() interrupts a wait.
  mutable std::mutex mutex_;
  std::string reason_;                  // Why it is over; empty: it is not.
  std::vector<std::string> heard_;      // By rank: bytes of a word that has not come whole.
  std::vector<bool> left_, gone_;       // By rank: in order; connection closed.
  std::vector<bool> waits_for_, came_;  // By rank, of the exchange under way.
};

}  // namespace brigade::dist
