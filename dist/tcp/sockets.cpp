// SPDX-License-Identifier: MIT
// dist/tcp/sockets.cpp - see the header.
#include "dist/tcp/sockets.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "dist/work.h"

namespace brigade::dist {
namespace {

constexpr std::chrono::milliseconds kRetry{20};

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

Addresses resolve(const Endpoint& at, int flags, std::string& why) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(at.host.empty() ? nullptr : at.host.c_str(), std::to_string(at.port).c_str(),
                               &hints, &found);
  if (code != 0) why = str("the host cannot be resolved (", gai_strerror(code), ")");
  return {code == 0 ? found : nullptr, freeaddrinfo};
}

Descriptor new_socket(const addrinfo& address) {
  return Descriptor(socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

void set(const Descriptor& socket, int level, int option, int value) {
  setsockopt(socket.get(), level, option, &value, sizeof value);  // Refusal costs speed or patience only.
}

bool ready(const Descriptor& socket, short events, Clock::time_point deadline) {
  while (true) {
    pollfd one{.fd = socket.get(), .events = events, .revents = 0};
    if (poll(&one, 1, milliseconds_until(deadline, std::chrono::milliseconds(1000))) > 0) return true;
    if (Clock::now() >= deadline) return false;
  }
}

// move(data, bytes) moves some, as send() and recv() do.
template <class Move>
bool all_by(const Descriptor& socket, short events, std::size_t bytes, Clock::time_point deadline,
            const Move& move) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t moved = move(done, bytes - done);
    if (moved > 0) {
      done += static_cast<std::size_t>(moved);
    } else if (moved == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
      return false;
    } else if (!ready(socket, events, deadline)) {
      return false;
    }
  }
  return true;
}

}  // namespace

int milliseconds_until(Clock::time_point deadline, std::chrono::milliseconds most) {
  if (deadline == Clock::time_point::max()) return static_cast<int>(most.count());
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  return static_cast<int>(std::clamp(left, std::chrono::milliseconds(0), most).count());
}

Descriptor listen_at(const Endpoint& at) {
  std::string why;
  const Addresses addresses = resolve(at, AI_PASSIVE, why);
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
    Descriptor socket = new_socket(*a);
    if (!socket) continue;
    set(socket, SOL_SOCKET, SO_REUSEADDR, 1);
    if (bind(socket.get(), a->ai_addr, a->ai_addrlen) == 0 && listen(socket.get(), SOMAXCONN) == 0)
      return socket;
    if (errno == EADDRNOTAVAIL) continue;
    why = std::strerror(errno);
    if (errno == EADDRINUSE) break;
  }
  if (why.empty() && !at.host.empty()) return Descriptor();
  throw CommError(str("tcp: cannot listen at ", at.text(), ": ", why));
}

int port_of(const Descriptor& listener) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

std::string peer_address(const Descriptor& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  char host[NI_MAXHOST] = {};
  if (getpeername(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&address), length, host, sizeof host, nullptr, 0,
                  NI_NUMERICHOST) != 0)
    return "";
  return host;
}

Descriptor connect_by(const Endpoint& to, Clock::time_point deadline, std::string& why) {
  const Addresses addresses = resolve(to, 0, why);
  if (!addresses) return Descriptor();
  do {
    for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
      Descriptor socket = new_socket(*a);
      if (!socket) continue;
      if (connect(socket.get(), a->ai_addr, a->ai_addrlen) == 0) return socket;
      if (errno == EINPROGRESS && ready(socket, POLLOUT, deadline)) {
        int error = 0;
        socklen_t length = sizeof error;
        if (getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0) return socket;
        errno = error;
      }
      why = std::strerror(errno);
    }
    std::this_thread::sleep_for(kRetry);
  } while (Clock::now() < deadline);
  return Descriptor();
}

bool send_by(const Descriptor& socket, const void* data, std::size_t bytes, Clock::time_point deadline) {
  return all_by(socket, POLLOUT, bytes, deadline, [&](std::size_t done, std::size_t left) {
    return send(socket.get(), static_cast<const char*>(data) + done, left, MSG_NOSIGNAL);
  });
}

bool receive_by(const Descriptor& socket, void* data, std::size_t bytes, Clock::time_point deadline) {
  return all_by(socket, POLLIN, bytes, deadline, [&](std::size_t done, std::size_t left) {
    return recv(socket.get(), static_cast<char*>(data) + done, left, 0);
  });
}

void prepare(const Descriptor& socket) {
  fcntl(socket.get(), F_SETFL, fcntl(socket.get(), F_GETFL) | O_NONBLOCK);
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, 4);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 30'000);
}

}  // namespace brigade::dist
