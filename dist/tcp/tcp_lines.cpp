// SPDX-License-Identifier: MIT
// dist/tcp/tcp_lines.cpp - sockets that never block, and one place where a rank sleeps.
#include "dist/tcp/tcp_lines.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

namespace brigade::dist {
namespace {

// A look at the clock and at what else may have happened.
constexpr std::chrono::milliseconds kNap{500};
// Who ends says why before its connections close; what comes over another one may be here later.
constexpr std::chrono::milliseconds kLastWords{300};
constexpr std::size_t kLongestReason = 1000;

}  // namespace

// What goes over a rank's second connection.
struct TcpLines::Word {
  enum : std::uint32_t { over, farewell } kind;
  std::uint32_t length;  // Of the text that follows.
};

TcpLines::TcpLines(TcpPeers peers, int rank)
    : peers_(std::move(peers)),
      rank_(rank),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      heard_(peers_.size()),
      left_(peers_.size(), false),
      gone_(peers_.size(), false),
      waits_for_(peers_.size(), false),
      came_(peers_.size(), false) {}

// Moves what can be moved now. False: nothing could.
bool TcpLines::move(TcpMessage& message) {
  constexpr auto kHeader = static_cast<std::int64_t>(sizeof message.header);
  const std::int64_t bytes = kHeader + message.t.bytes();
  const bool out = message.way == TcpMessage::Way::out;
  bool moved = false;
  while (message.done < bytes) {
    const bool in_header = message.done < kHeader;
    iovec parts[2] = {};
    if (in_header)
      parts[0] = {reinterpret_cast<char*>(&message.header) + message.done,
                  static_cast<std::size_t>(kHeader - message.done)};
    // The header is looked at before any byte goes where it may not belong.
    const std::int64_t body = std::max<std::int64_t>(message.done - kHeader, 0);
    if (!in_header || out)
      parts[1] = {message.t.raw() + body, static_cast<std::size_t>(message.t.bytes() - body)};
    msghdr parcel{};
    parcel.msg_iov = parts;
    parcel.msg_iovlen = 2;
    const int socket = peers_[static_cast<std::size_t>(message.peer)].data.get();
    const ssize_t n = out ? sendmsg(socket, &parcel, MSG_NOSIGNAL) : recvmsg(socket, &parcel, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return moved;
    if (n <= 0) lost(message.peer);
    message.done += n;
    moved = true;
    if (out || !in_header || message.done < kHeader) continue;
    {
      std::lock_guard lock(mutex_);
      came_[static_cast<std::size_t>(message.peer)] = true;
    }
    const TcpMessage::Header& theirs = message.header;
    if (theirs.count != message.t.numel() || theirs.dtype != static_cast<std::int64_t>(message.t.dtype()))
      throw CommError(str("rank ", message.peer, " sent ", static_cast<DType>(theirs.dtype), " x ",
                          theirs.count, ", rank ", rank_, " receives ", message.t.dtype(), " x ",
                          message.t.numel()));
  }
  return moved;
}

void TcpLines::exchange(std::span<TcpMessage> messages) {
  check_alive();
  const auto over = [](const TcpMessage& m) {
    return m.done == static_cast<std::int64_t>(sizeof m.header) + m.t.bytes();
  };
  {
    std::lock_guard lock(mutex_);
    std::fill(waits_for_.begin(), waits_for_.end(), false);
    std::fill(came_.begin(), came_.end(), false);
    for (const TcpMessage& m : messages) waits_for_[static_cast<std::size_t>(m.peer)] = true;
  }
  for (TcpMessage& m : messages)
    if (m.way == TcpMessage::Way::out) m.header = {m.t.numel(), static_cast<std::int64_t>(m.t.dtype())};
  while (true) {
    bool moved = false, all = true;
    for (TcpMessage& m : messages) {
      if (over(m)) continue;
      moved = move(m) || moved;
      all = all && over(m);
    }
    if (all) break;
    if (!moved) wait(messages);
  }
  std::lock_guard lock(mutex_);
  std::fill(waits_for_.begin(), waits_for_.end(), false);
}

// Until one of the messages can move, somebody has something to say, or the time is up.
void TcpLines::wait(std::span<TcpMessage> messages) {
  std::vector<pollfd> events{{.fd = wake_.get(), .events = POLLIN, .revents = 0}};
  std::vector<int> speakers;
  {
    std::lock_guard lock(mutex_);
    for (int r = 0; r < size(); ++r) {
      const auto at = static_cast<std::size_t>(r);
      if (r == rank_ || gone_[at]) continue;
      events.push_back({.fd = peers_[at].words.get(), .events = POLLIN, .revents = 0});
      speakers.push_back(r);
    }
  }
  for (const TcpMessage& m : messages) {
    if (m.done == static_cast<std::int64_t>(sizeof m.header) + m.t.bytes()) continue;
    const short wanted = m.way == TcpMessage::Way::out ? POLLOUT : POLLIN;
    events.push_back(
        {.fd = peers_[static_cast<std::size_t>(m.peer)].data.get(), .events = wanted, .revents = 0});
  }
  const auto deadline = WaitLimit::deadline();
  poll(events.data(), events.size(), milliseconds_until(deadline, kNap));
  for (std::size_t i = 0; i < speakers.size(); ++i)
    if (events[i + 1].revents != 0) listen(speakers[i]);
  check_alive();
  if (deadline != Clock::time_point::max() && Clock::now() >= deadline) throw TimedOut();
}

// Reads what `peer` has said by now. Whose connection ends without a farewell has ended without one.
void TcpLines::listen(int peer) {
  std::lock_guard lock(mutex_);
  const auto at = static_cast<std::size_t>(peer);
  if (peer == rank_ || gone_[at]) return;
  std::string& heard = heard_[at];
  while (true) {
    char some[512];
    const ssize_t n = recv(peers_[at].words.get(), some, sizeof some, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (n <= 0) {
      gone_[at] = true;
      break;
    }
    heard.append(some, static_cast<std::size_t>(n));
  }
  Word word;
  while (heard.size() >= sizeof word) {
    std::memcpy(&word, heard.data(), sizeof word);
    const std::size_t length = std::min<std::size_t>(word.length, kLongestReason);
    if (heard.size() < sizeof word + length) break;
    if (word.kind == Word::farewell)
      left_[at] = true;
    else if (reason_.empty())
      reason_ = heard.substr(sizeof word, length);
    heard.erase(0, sizeof word + length);
  }
  if (gone_[at] && !left_[at] && reason_.empty())
    reason_ = str("rank ", peer, " (process ", peers_[at].process, ") is gone");
}

std::optional<std::string> TcpLines::failure() {
  for (int r = 0; r < size(); ++r) listen(r);
  std::lock_guard lock(mutex_);
  return reason_.empty() ? std::nullopt : std::optional(reason_);
}

void TcpLines::check_alive() {
  std::lock_guard lock(mutex_);
  if (!reason_.empty()) throw CommError(reason_);
}

// The data's connection has ended. The reason may be on its way, from that rank or from another one.
void TcpLines::lost(int peer) {
  const auto deadline = Clock::now() + kLastWords;
  while (Clock::now() < deadline) {
    if (const auto reason = failure()) throw CommError(*reason);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  throw CommError(
      str("rank ", peer, " (process ", peers_[static_cast<std::size_t>(peer)].process, ") is gone"));
}

std::optional<std::string> TcpLines::arrivals() const {
  std::lock_guard lock(mutex_);
  if (std::find(waits_for_.begin(), waits_for_.end(), true) == waits_for_.end()) return std::nullopt;
  std::vector<bool> arrived(peers_.size(), true);
  for (std::size_t r = 0; r < peers_.size(); ++r) arrived[r] = !waits_for_[r] || came_[r];
  return describe_arrivals(arrived, std::vector<Progress>(peers_.size()));
}

void TcpLines::abort(const std::string& reason) noexcept {
  bool first = false;
  {
    std::lock_guard lock(mutex_);
    first = reason_.empty();
    if (first) reason_ = reason.substr(0, kLongestReason);
  }
  const std::uint64_t one = 1;
  static_cast<void>(!write(wake_.get(), &one, sizeof one));
  // Also what came from another rank: not everybody may hear that one.
  std::string text = reason.substr(0, kLongestReason);
  const Word word{Word::over, static_cast<std::uint32_t>(text.size())};
  text.insert(0, reinterpret_cast<const char*>(&word), sizeof word);
  for (int r = 0; r < size(); ++r)
    if (r != rank_)
      static_cast<void>(send(peers_[static_cast<std::size_t>(r)].words.get(), text.data(), text.size(),
                             MSG_NOSIGNAL | MSG_DONTWAIT));
}

void TcpLines::leave() {
  const Word word{Word::farewell, 0};
  for (int r = 0; r < size(); ++r)
    if (r != rank_)
      static_cast<void>(send(peers_[static_cast<std::size_t>(r)].words.get(), &word, sizeof word,
                             MSG_NOSIGNAL | MSG_DONTWAIT));
}

}  // namespace brigade::dist
