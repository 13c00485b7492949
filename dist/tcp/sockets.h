// SPDX-License-Identifier: MIT
// dist/tcp/sockets.h - sockets with deadlines: what dist/tcp needs of the system. Read next: dist/tcp/meeting_point.h.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/stream.h"
#include "dist/shm/handover.h"

namespace brigade::dist {

struct Endpoint {
  std::string host;  ///< Name or number.
  int port = 0;
  std::string text() const { return host + ":" + std::to_string(port); }
};

/// A socket that listens at `at`; an empty host: on all interfaces; port 0: any that is free. Non-blocking. None if
/// this machine has no such address. Throws CommError with the system's reason.
Descriptor listen_at(const Endpoint& at);
int port_of(const Descriptor& listener);

/// Tries again and again: who is called may not listen yet. None by `deadline`, or at once if the host's name cannot be
/// resolved; `why` is the last reason.
Descriptor connect_by(const Endpoint& to, Clock::time_point deadline, std::string& why);
/// The number of the other end.
std::string peer_address(const Descriptor& socket);

/// All `bytes`, on a blocking or non-blocking socket. False: the other end is gone, or the deadline has passed.
bool send_by(const Descriptor& socket, const void* data, std::size_t bytes, Clock::time_point deadline);
bool receive_by(const Descriptor& socket, void* data, std::size_t bytes, Clock::time_point deadline);

/// For traffic: no delays, no blocking, and a host that has vanished is noticed within half a minute.
void prepare(const Descriptor& socket);

/// Milliseconds for poll(): until `deadline`, at most `most`.
int milliseconds_until(Clock::time_point deadline, std::chrono::milliseconds most);

}  // namespace brigade::dist
