// SPDX-License-Identifier: MIT
// dist/tcp/meeting_point.h - how processes that know nothing but rank 0's address find each other: rank 0 listens
// there, all tell it where they listen themselves, and then each pair of ranks is connected.
// Read before: dist/tcp/sockets.h. Read next: dist/tcp/tcp_transport.h.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dist/tcp/sockets.h"
#include "dist/work.h"

namespace brigade::dist {

/// Connections to one rank: bytes of tensors, and words about the group, which may come at any time.
struct TcpPeer {
  Descriptor data, words;
  std::int64_t process = 0;
};
using TcpPeers = std::vector<TcpPeer>;  ///< By rank; one's own has no connections.

/// One process's way to the others. Several groups may be connected one after another.
class MeetingPoint {
 public:
  /// `at`: rank 0's address, the same for all. Rank 0 listens from now on: there, or on all interfaces where its
  /// machine has no such address (it may be a router's). Port 0: any that is free, see port().
  MeetingPoint(Endpoint at, int rank, int size);

  int rank() const { return rank_; }
  int size() const { return size_; }
  int port() const { return port_; }

  /// Collective. Throws CommError if not all ranks have come after `timeout`, or if two of them disagree about what
  /// they are: with the same text on rank 0 and on all that have come.
  TcpPeers connect(std::chrono::milliseconds timeout);

  /// Rank 0: "arrived: ranks 0, 2; missing: rank 1". Others know about rank 0 only. Empty after an error of connect(),
  /// which says it. From any thread.
  std::string arrivals() const;

 private:
  struct Hello;
  struct Seat;
  struct Table;
  Table host(const Seat& mine, Clock::time_point deadline);
  Table join(const Seat& mine, Clock::time_point deadline);
  TcpPeers connect_pairs(const Table& table, const Descriptor& own, Clock::time_point deadline);
  void note(const std::string& text);
  CommError failed(const std::string& why);

  const Endpoint at_;
  std::string own_host_;  // Rank 0: where it listens; empty: on all interfaces. Others do so.
  const int rank_, size_;
  int port_ = 0;
  Descriptor listener_;  // Rank 0's.
  std::uint32_t groups_ = 0;
  mutable std::mutex mutex_;
  std::string arrivals_;  // Guarded by mutex_.
};

}  // namespace brigade::dist
