// SPDX-License-Identifier: MIT
// dist/tcp/meeting_point.cpp - hello, table, pairs. Whoever calls and does not speak like a rank of this job is not
// answered (dist/tcp/callers.h).
#include "dist/tcp/meeting_point.h"

#include <sys/random.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "dist/tcp/callers.h"
#include "dist/transport.h"

namespace brigade::dist {
namespace {

constexpr std::uint64_t kMagic = 0x627269676164650bull;  // "brigade" and the version of what follows.
// A rank that does not take its answer must not keep the others waiting.
constexpr std::chrono::milliseconds kPatience{2000};

enum class Line : std::uint32_t { data, words };

}  // namespace

// What a rank says first, to rank 0 and, with the token of the table, to its pairs.
struct MeetingPoint::Hello {
  std::uint64_t magic = kMagic, token = 0;
  std::uint32_t group = 0;
  std::int32_t rank = 0, size = 0;
  Line line = Line::data;
};

struct MeetingPoint::Seat {
  std::int64_t process = 0;
  std::int32_t port = 0;
  char host[64] =
      {};  // A number, as rank 0 sees it. Rank 0's own is empty: all know where they have found it.
};

// Rank 0's answer. `error`: the table is worthless, and the reason follows.
struct MeetingPoint::Table {
  std::uint64_t token = 0;
  std::vector<Seat> seats;
};

MeetingPoint::MeetingPoint(Endpoint at, int rank, int size) : at_(std::move(at)), rank_(rank), size_(size) {
  port_ = at_.port;
  note("not all ranks have come");
  if (rank_ != 0) return;
  // Not on all interfaces where one will do: who listens is heard by strangers, too.
  listener_ = listen_at(at_);
  if (listener_)
    own_host_ = at_.host;
  else
    listener_ = listen_at({"", at_.port});
  port_ = port_of(listener_);
}

void MeetingPoint::note(const std::string& text) {
  std::lock_guard lock(mutex_);
  arrivals_ = text;
}
// The error says it all: arrivals() has nothing to add.
CommError MeetingPoint::failed(const std::string& why) {
  note("");
  return CommError("tcp: " + why);
}
std::string MeetingPoint::arrivals() const {
  std::lock_guard lock(mutex_);
  return arrivals_;
}

MeetingPoint::Table MeetingPoint::host(const Seat& mine, Clock::time_point deadline) {
  Table table;
  table.seats.resize(static_cast<std::size_t>(size_));
  table.seats[0] = mine;
  if (getrandom(&table.token, sizeof table.token, 0) != sizeof table.token)
    table.token = kMagic ^ mine.process;
  std::vector<Descriptor> callers(static_cast<std::size_t>(size_));
  std::vector<bool> arrived(static_cast<std::size_t>(size_), false);
  arrived[0] = true;
  const auto note_arrivals = [&] {
    note(describe_arrivals(arrived, std::vector<Progress>(static_cast<std::size_t>(size_))));
  };
  note_arrivals();
  std::string error;
  Callers waiting(listener_, kMagic, sizeof(Hello) + sizeof(Seat));
  for (int missing = size_ - 1; missing > 0 && error.empty();) {
    std::optional<Caller> caller = waiting.next(deadline);
    if (!caller) {
      error = str("not all ranks came to ", at_.text(), " in time; ", arrivals(), waiting.strangers());
      if (own_host_.empty())
        error += str("; ", at_.host, " is no address of rank 0's machine, which listens on all interfaces");
      break;
    }
    Hello hello;
    Seat seat;
    std::memcpy(&hello, caller->said.data(), sizeof hello);
    std::memcpy(&seat, caller->said.data() + sizeof hello, sizeof seat);
    const auto r = static_cast<std::size_t>(hello.rank);
    if (hello.size != size_)
      error = str("rank ", hello.rank, " came with WORLD_SIZE ", hello.size, ", rank 0 has ", size_);
    else if (hello.rank < 1 || hello.rank >= size_ || hello.group != groups_)
      error = str("a process came as rank ", hello.rank, " of ", hello.size, " to group ", hello.group,
                  " of ", groups_);
    else if (arrived[r])
      error =
          str("two processes came as rank ", hello.rank, ": ", table.seats[r].process, " and ", seat.process);
    if (!error.empty()) {
      callers.push_back(std::move(caller->socket));  // It hears why.
      break;
    }
    peer_address(caller->socket).copy(seat.host, sizeof seat.host - 1);
    table.seats[r] = seat;
    callers[r] = std::move(caller->socket);
    arrived[r] = true;
    --missing;
    note_arrivals();
  }
  // The answer: how long the error is, and either that or the table.
  const auto length = static_cast<std::uint32_t>(error.size());
  const auto patience = Clock::now() + kPatience;
  for (const Descriptor& caller : callers) {
    if (!caller) continue;
    send_by(caller, &length, sizeof length, patience);
    if (length > 0) {
      send_by(caller, error.data(), error.size(), patience);
      continue;
    }
    send_by(caller, &table.token, sizeof table.token, patience);
    send_by(caller, table.seats.data(), table.seats.size() * sizeof(Seat), patience);
  }
  if (!error.empty()) throw failed(error);
  return table;
}

MeetingPoint::Table MeetingPoint::join(const Seat& mine, Clock::time_point deadline) {
  std::string why;
  note(str("rank 0 does not answer at ", at_.text()));
  const Descriptor socket = connect_by(at_, deadline, why);
  if (!socket) throw failed(str("rank 0 does not answer at ", at_.text(), ": ", why));
  note("rank 0 waits for others");
  const Hello hello{.group = groups_, .rank = rank_, .size = size_};
  Table table;
  table.seats.resize(static_cast<std::size_t>(size_));
  std::uint32_t length = 0;
  const auto lost = [&] {
    return CommError(
        str("tcp: rank 0 at ", at_.text(), " gave no answer: either it has ended, or not all ranks came"));
  };
  if (!send_by(socket, &hello, sizeof hello, deadline) || !send_by(socket, &mine, sizeof mine, deadline) ||
      !receive_by(socket, &length, sizeof length, deadline))
    throw lost();
  if (length > 0) {
    std::string error(std::min<std::size_t>(length, 4096), '\0');
    if (!receive_by(socket, error.data(), error.size(), deadline)) throw lost();
    throw failed(error);
  }
  if (!receive_by(socket, &table.token, sizeof table.token, deadline) ||
      !receive_by(socket, table.seats.data(), table.seats.size() * sizeof(Seat), deadline))
    throw lost();
  return table;
}

// Each rank calls those below it, twice, and is called by those above. Everybody listens already.
TcpPeers MeetingPoint::connect_pairs(const Table& table, const Descriptor& own, Clock::time_point deadline) {
  TcpPeers peers(static_cast<std::size_t>(size_));
  const auto line_of = [&](int r, Line line) -> Descriptor& {
    TcpPeer& peer = peers[static_cast<std::size_t>(r)];
    return line == Line::data ? peer.data : peer.words;
  };
  for (int r = 0; r < size_; ++r)
    peers[static_cast<std::size_t>(r)].process = table.seats[static_cast<std::size_t>(r)].process;
  for (int r = 0; r < rank_; ++r) {
    const Seat& seat = table.seats[static_cast<std::size_t>(r)];
    const Endpoint there{r == 0 ? at_.host : std::string(seat.host, strnlen(seat.host, sizeof seat.host)),
                         seat.port};
    note(str("rank ", r, " does not answer at ", there.text()));
    for (const Line line : {Line::data, Line::words}) {
      std::string why;
      Descriptor socket = connect_by(there, deadline, why);
      const Hello hello{.token = table.token, .group = groups_, .rank = rank_, .size = size_, .line = line};
      if (!socket || !send_by(socket, &hello, sizeof hello, deadline))
        throw failed(str("rank ", r, " does not answer at ", there.text(), ": ", why));
      line_of(r, line) = std::move(socket);
    }
  }
  Callers waiting(own, kMagic, sizeof(Hello));
  for (int missing = 2 * (size_ - 1 - rank_); missing > 0;) {
    std::string absent;
    for (int r = rank_ + 1; r < size_; ++r)
      if (!line_of(r, Line::data) || !line_of(r, Line::words)) absent += str(absent.empty() ? "" : ", ", r);
    note(str("no connection from ranks ", absent));
    std::optional<Caller> caller = waiting.next(deadline);
    if (!caller) throw failed(str("no connection in time from ranks ", absent, waiting.strangers()));
    Hello hello;
    std::memcpy(&hello, caller->said.data(), sizeof hello);
    if (hello.token != table.token || hello.group != groups_ || hello.rank <= rank_ || hello.rank >= size_ ||
        line_of(hello.rank, hello.line)) {
      waiting.dismiss();
      continue;
    }
    line_of(hello.rank, hello.line) = std::move(caller->socket);
    --missing;
  }
  for (TcpPeer& peer : peers) {
    if (!peer.data) continue;
    prepare(peer.data);
    prepare(peer.words);
  }
  note("all ranks have come");
  return peers;
}

TcpPeers MeetingPoint::connect(std::chrono::milliseconds timeout) {
  // Somewhat less than the caller's patience: what we have to say is more than that it ran out.
  const auto deadline = Clock::now() + timeout - std::min(timeout / 10, std::chrono::milliseconds(500));
  ++groups_;
  const Descriptor own = listen_at({own_host_, 0});
  Seat mine;
  mine.process = getpid();
  mine.port = port_of(own);
  return connect_pairs(rank_ == 0 ? host(mine, deadline) : join(mine, deadline), own, deadline);
}

}  // namespace brigade::dist
