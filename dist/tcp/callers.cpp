// SPDX-License-Identifier: MIT
// dist/tcp/callers.cpp - one poll() over the listener and all who have come.
#include "dist/tcp/callers.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/check.h"

namespace brigade::dist {
namespace {

// Strangers must not use up the descriptors of this process: beyond so many, who has waited longest goes.
constexpr std::size_t kMostWaiting = 256;

}  // namespace

Callers::Callers(const Descriptor& listener, std::uint64_t word, std::size_t bytes)
    : listener_(listener), word_(reinterpret_cast<const char*>(&word), sizeof word), bytes_(bytes) {}

std::optional<Caller> Callers::next(Clock::time_point deadline) {
  do {
    std::vector<pollfd> events{{.fd = listener_.get(), .events = POLLIN, .revents = 0}};
    for (const Caller& caller : waiting_)
      events.push_back({.fd = caller.socket.get(), .events = POLLIN, .revents = 0});
    if (poll(events.data(), events.size(), milliseconds_until(deadline, std::chrono::milliseconds(1000))) <=
        0)
      continue;
    for (std::size_t i = waiting_.size(); i-- > 0;) {
      if (events[i + 1].revents == 0) continue;
      const bool ours = hear(waiting_[i]);
      if (ours && waiting_[i].said.size() < bytes_) continue;
      Caller caller = std::move(waiting_[i]);
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
      if (ours) return caller;
      dismiss();
    }
    if (events[0].revents != 0) admit();
  } while (Clock::now() < deadline);
  return std::nullopt;
}

// What has come of its words. False: it is none of ours, or has gone.
bool Callers::hear(Caller& caller) const {
  const std::size_t before = caller.said.size();
  caller.said.resize(bytes_);
  const ssize_t got = recv(caller.socket.get(), caller.said.data() + before, bytes_ - before, 0);
  const bool nothing_yet = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
  caller.said.resize(before + (got > 0 ? static_cast<std::size_t>(got) : 0));
  const std::size_t told = std::min(caller.said.size(), word_.size());
  return (got > 0 || nothing_yet) && caller.said.compare(0, told, word_, 0, told) == 0;
}

void Callers::admit() {
  Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) return;
  waiting_.push_back({.socket = std::move(socket), .said = {}});
  if (waiting_.size() <= kMostWaiting) return;
  waiting_.erase(waiting_.begin());
  dismiss();
}

std::string Callers::strangers() const {
  const std::size_t count = dismissed_ + waiting_.size();
  if (count == 0) return "";
  return str("; ", count, count == 1 ? " caller" : " callers", " did not speak like ranks of this job");
}

}  // namespace brigade::dist
