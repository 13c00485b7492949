// SPDX-License-Identifier: MIT
// tests/dist/tcp_test.cpp - the meeting point, strangers at it, and sockets that end. Ranks are threads here;
// collectives_test.cpp runs over sockets between processes, too.
#include <sys/socket.h>

#include <atomic>
#include <optional>
#include <thread>

#include "dist/tcp/callers.h"
#include "dist/tcp/tcp_transport.h"
#include "tests/dist/patterns.h"
#include "tests/support/ranks.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::dist;
using namespace brigade::test;
using Catch::Matchers::Equals;
using Catch::Matchers::StartsWith;
using std::chrono::milliseconds;

namespace {

// What each rank's part throws, all at once. Rank 0's listener is made first: the others are told its port.
std::vector<std::string> at_once(int ranks, const std::function<void(int rank, const Endpoint&)>& part,
                                 const Endpoint& at) {
  std::vector<std::string> out(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back(
        [&, rank] { out[static_cast<std::size_t>(rank)] = thrown_by([&] { part(rank, at); }); });
  for (std::thread& thread : threads) thread.join();
  return out;
}

std::shared_ptr<TcpLines> lines_of(MeetingPoint& place) {
  return std::make_shared<TcpLines>(place.connect(milliseconds(5000)), place.rank());
}

// body(group) on every rank of a group over sockets, with what it throws.
std::vector<std::string> over_sockets(int ranks, milliseconds timeout,
                                      const std::function<void(ProcessGroup&)>& body) {
  MeetingPoint first({"127.0.0.1", 0}, 0, ranks);
  const auto part = [&](int rank, const Endpoint& at) {
    std::optional<MeetingPoint> other;
    MeetingPoint& place = rank == 0 ? first : other.emplace(at, rank, ranks);
    ProcessGroup group([&] { return make_tcp_transport(lines_of(place)); }, {.timeout = timeout});
    body(group);
    group.close();
  };
  return at_once(ranks, part, {"127.0.0.1", first.port()});
}

Tensor ones() {
  return filled(10, DType::f32, [](std::int64_t) { return 1; });
}

}  // namespace

TEST_CASE("a rank that does not come to the meeting point is named within the time-out",
          "[dist][tcp][error]") {
  MeetingPoint first({"127.0.0.1", 0}, 0, 3);
  const auto thrown = at_once(2,
                              [&](int rank, const Endpoint& at) {
                                if (rank == 0) return static_cast<void>(first.connect(milliseconds(600)));
                                MeetingPoint place(at, 1, 3);
                                static_cast<void>(place.connect(milliseconds(5000)));
                              },
                              {"127.0.0.1", first.port()});
  for (const std::string& text : thrown)
    REQUIRE_THAT(text, StartsWith("CommError: tcp: not all ranks came to 127.0.0.1:") &&
                           ContainsSubstring("arrived: ranks 0, 1; missing: rank 2"));
  MeetingPoint alone({"127.0.0.1", 1}, 1, 2);
  REQUIRE_THAT(thrown_by([&] { static_cast<void>(alone.connect(milliseconds(200))); }),
               Equals("CommError: tcp: rank 0 does not answer at 127.0.0.1:1: Connection refused"));
}

TEST_CASE("an address that cannot be resolved is said at once, on every rank", "[dist][tcp][error]") {
  const std::string why = "no-such-host.invalid:29500: the host cannot be resolved (";
  const auto begin = Clock::now();
  const auto thrown = at_once(2,
                              [&](int rank, const Endpoint& at) {
                                MeetingPoint place(at, rank, 2);
                                static_cast<void>(place.connect(std::chrono::minutes(10)));
                              },
                              {"no-such-host.invalid", 29500});
  REQUIRE_THAT(thrown[0], StartsWith("CommError: tcp: cannot listen at " + why));
  REQUIRE_THAT(thrown[1], StartsWith("CommError: tcp: rank 0 does not answer at " + why));
  REQUIRE(Clock::now() - begin < std::chrono::minutes(5));  // Resolvers have time-outs of their own.
}

TEST_CASE("rank 0 listens on all interfaces where the address is not its own, and says so if nobody comes",
          "[dist][tcp][error]") {
  const Endpoint elsewhere{"192.0.2.1", 0};  // Of nobody, RFC 5737.
  MeetingPoint first(elsewhere, 0, 2);
  const auto thrown = at_once(2,
                              [&](int rank, const Endpoint& at) {
                                std::optional<MeetingPoint> other;
                                MeetingPoint& place = rank == 0 ? first : other.emplace(at, rank, 2);
                                make_tcp_transport(lines_of(place))->close();
                              },
                              {"127.0.0.1", first.port()});
  REQUIRE(thrown == std::vector<std::string>(2));
  MeetingPoint alone(elsewhere, 0, 2);
  REQUIRE_THAT(
      thrown_by([&] { static_cast<void>(alone.connect(milliseconds(100))); }),
      ContainsSubstring("missing: rank 1; 192.0.2.1 is no address of rank 0's machine, which listens on "
                        "all interfaces"));
}

TEST_CASE("ranks that disagree about who they are hear it, all of them", "[dist][tcp][error]") {
  for (const bool same_rank : {true, false}) {
    MeetingPoint first({"127.0.0.1", 0}, 0, 3);
    const auto thrown =
        at_once(3,
                [&](int rank, const Endpoint& at) {
                  if (rank == 0) return static_cast<void>(first.connect(milliseconds(5000)));
                  MeetingPoint place(at, same_rank ? 1 : rank, same_rank || rank == 1 ? 3 : 4);
                  static_cast<void>(place.connect(milliseconds(5000)));
                },
                {"127.0.0.1", first.port()});
    for (const std::string& text : {thrown[0], thrown[2]})
      REQUIRE_THAT(text, ContainsSubstring(same_rank ? "two processes came as rank 1"
                                                     : "rank 2 came with WORLD_SIZE 4, rank 0 has 3"));
  }
}

TEST_CASE("strangers at the port are not answered and do not disturb the ranks", "[dist][tcp]") {
  MeetingPoint first({"127.0.0.1", 0}, 0, 2);
  const Endpoint at{"127.0.0.1", first.port()};
  const auto soon = Clock::now() + std::chrono::seconds(2);
  std::string why;
  const Descriptor rude = connect_by(at, soon, why), gone = connect_by(at, soon, why);
  const std::string nonsense =
      "GET / HTTP/1.1\r\nHost: nobody\r\n\r\n and more, so that it is longer than a hello";
  REQUIRE(send_by(rude, nonsense.data(), nonsense.size(), soon));
  shutdown(gone.get(), SHUT_RDWR);
  const auto thrown = at_once(
      2,
      [&](int rank, const Endpoint& there) {
        std::optional<MeetingPoint> other;
        const auto lines = lines_of(rank == 0 ? first : other.emplace(there, rank, 2));
        const auto transport = make_tcp_transport(lines);
        transport->barrier();
        transport->close();
      },
      at);
  REQUIRE(thrown == std::vector<std::string>(2));
}

TEST_CASE("strangers that say nothing, or too little, do not use up the time to meet", "[dist][tcp]") {
  MeetingPoint first({"127.0.0.1", 0}, 0, 2);
  const Endpoint at{"127.0.0.1", first.port()};
  std::string why;
  std::vector<Descriptor> strangers;  // They stay on the line.
  for (int i = 0; i < 20; ++i) {
    strangers.push_back(connect_by(at, Clock::now() + std::chrono::seconds(2), why));
    if (i % 2 == 0) REQUIRE(send(strangers.back().get(), "?", 1, MSG_NOSIGNAL) == 1);
  }
  const auto thrown = at_once(
      2,
      [&](int rank, const Endpoint& there) {
        std::optional<MeetingPoint> other;
        static_cast<void>(lines_of(rank == 0 ? first : other.emplace(there, rank, 2)));
      },
      at);
  REQUIRE(thrown == std::vector<std::string>(2));
  // Nor are they passed over in silence where nobody else comes.
  MeetingPoint alone({"127.0.0.1", 0}, 0, 2);
  strangers.clear();
  for (int i = 0; i < 3; ++i)
    strangers.push_back(connect_by({"127.0.0.1", alone.port()}, Clock::now() + std::chrono::seconds(2), why));
  REQUIRE(send(strangers[0].get(), "GET / HTTP/1.1", 14, MSG_NOSIGNAL) == 14);
  REQUIRE_THAT(thrown_by([&] { static_cast<void>(alone.connect(milliseconds(300))); }),
               ContainsSubstring("missing: rank 1; 3 callers did not speak like ranks of this job"));
}

TEST_CASE("a caller is heard in pieces, and dismissed at the first eight bytes if they are wrong",
          "[dist][tcp]") {
  const Descriptor listener = listen_at({"127.0.0.1", 0});
  constexpr std::uint64_t kWord = 0x0102030405060708;
  Callers callers(listener, kWord, 12);
  const auto call = [&] {
    std::string why;
    return connect_by({"127.0.0.1", port_of(listener)}, Clock::now() + std::chrono::seconds(2), why);
  };
  const auto say = [](const Descriptor& socket, const std::string& text) {
    REQUIRE(send_by(socket, text.data(), text.size(), Clock::now() + std::chrono::seconds(2)));
  };
  const Descriptor slow = call(), wrong = call(), silent = call();
  const std::string words = std::string(reinterpret_cast<const char*>(&kWord), 8) + "rank";
  say(slow, words.substr(0, 5));
  say(wrong, "GET / HT");
  REQUIRE_FALSE(callers.next(Clock::now() + milliseconds(200)));
  char byte = 0;
  REQUIRE(recv(wrong.get(), &byte, 1, MSG_DONTWAIT) == 0);  // Closed, while the others are still heard.
  REQUIRE(recv(silent.get(), &byte, 1, MSG_DONTWAIT) == -1);
  say(slow, words.substr(5));
  const auto caller = callers.next(Clock::now() + std::chrono::seconds(2));
  REQUIRE(caller);
  REQUIRE(caller->said == words);
  REQUIRE(callers.strangers() == "; 2 callers did not speak like ranks of this job");
}

TEST_CASE("rank 0 is found at an address of any length", "[dist][tcp]") {
  MeetingPoint first({"127.0.0.1", 0}, 0, 3);
  const auto thrown = at_once(3,
                              [&](int rank, const Endpoint& at) {
                                std::optional<MeetingPoint> other;
                                MeetingPoint& place = rank == 0 ? first : other.emplace(at, rank, 3);
                                make_tcp_transport(lines_of(place))->close();
                              },
                              {"127.0.0." + std::string(200, '0') + "1", first.port()});
  REQUIRE(thrown == std::vector<std::string>(3));
}

TEST_CASE("a rank whose connections end is named at once, whoever waits for whom", "[dist][tcp][error]") {
  const auto begin = Clock::now();
  MeetingPoint first({"127.0.0.1", 0}, 0, 3);
  std::atomic<int> behind_barrier = 0;
  const auto thrown =
      at_once(3,
              [&](int rank, const Endpoint& at) {
                std::optional<MeetingPoint> other;
                MeetingPoint& place = rank == 0 ? first : other.emplace(at, rank, 3);
                if (rank == 2) {  // As a process that is killed: its sockets are closed without a word.
                  const auto transport = make_tcp_transport(lines_of(place));
                  transport->barrier();
                  for (int i = 0; behind_barrier < 2 && i < 5000; ++i)
                    std::this_thread::sleep_for(milliseconds(1));
                  return;
                }
                ProcessGroup group([&] { return make_tcp_transport(lines_of(place)); },
                                   {.timeout = milliseconds(20'000), .check_calls = false});
                group.barrier().wait();
                ++behind_barrier;
                // A long one goes around the ring: not everybody waits for rank 2 itself.
                const Tensor t = Tensor::zeros({100'000}, DType::f32);
                while (true) group.all_reduce(t, Reduce::sum, "bucket 1").wait();
              },
              {"127.0.0.1", first.port()});
  for (const int r : {0, 1})
    REQUIRE_THAT(thrown[static_cast<std::size_t>(r)],
                 ContainsSubstring("bucket 1: rank 2 (process ") && ContainsSubstring("is gone"));
  REQUIRE(Clock::now() - begin < std::chrono::seconds(5));
}

TEST_CASE("over sockets a rank's failure is heard by all with its reason, in the midst of a wait",
          "[dist][tcp][error]") {
  const auto begin = Clock::now();
  const auto thrown = over_sockets(3, milliseconds(20'000), [](ProcessGroup& group) {
    group.barrier().wait();
    if (group.rank() == 1) {
      std::this_thread::sleep_for(milliseconds(100));  // The others wait for it by then.
      group.abort("rank 1/3 failed: no such file: data.bin");
      throw Error("no such file: data.bin");
    }
    group.all_reduce(ones(), Reduce::sum, "bucket 0").wait();
  });
  for (const int r : {0, 2})
    REQUIRE_THAT(thrown[static_cast<std::size_t>(r)],
                 ContainsSubstring("bucket 0: rank 1/3 failed: no such file: data.bin"));
  REQUIRE(Clock::now() - begin < std::chrono::seconds(5));
}

TEST_CASE("over sockets the time-out names the rank that did not come", "[dist][tcp][error]") {
  std::atomic<int> waiting = 2;
  const auto thrown = over_sockets(3, milliseconds(400), [&](ProcessGroup& group) {
    group.barrier().wait();
    if (group.rank() == 1) {
      while (waiting > 0) std::this_thread::sleep_for(milliseconds(5));
      return;
    }
    const std::string error = thrown_by([&] { group.all_reduce(ones(), Reduce::sum, "bucket 0").wait(); });
    --waiting;
    throw CommError(error);
  });
  REQUIRE_THAT(thrown[0] + thrown[2],
               ContainsSubstring("bucket 0: not done within 400 ms") && ContainsSubstring("missing: rank 1"));
}
