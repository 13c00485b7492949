// SPDX-License-Identifier: MIT
// tests/dist/arrival_board_test.cpp - who has come, as the ranks on one host see it, and that who waits sleeps. What a
// stuck rank of a real job looks like: tests/apps/stuck_test.py.
#include "dist/mpi/arrival_board.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <ctime>
#include <future>
#include <thread>

#include "tests/support/ranks.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::dist;
using namespace brigade::test;
using Board = std::shared_ptr<ArrivalBoard>;

namespace {

std::string unique_name(const char* test) { return str("brigade-test-", getpid(), "-", test); }

LaunchEnvironment rank_of(int rank, int size, int local_size) {
  return {.mpi = true, .rank = rank, .size = size, .local_size = local_size};
}

// A board of somebody else's, who serves meanwhile.
Board join(ArrivalBoard& server, const LaunchEnvironment& self, const std::string& name) {
  auto joined = std::async(std::launch::async, [&] { return ArrivalBoard::attach(self, name); });
  while (joined.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) server.serve();
  return joined.get();
}

Progress doing(const char* phase, std::int64_t step) {
  Progress progress{.step = step, .pending = 3, .gradients = 62};
  std::strncpy(progress.phase, phase, sizeof progress.phase - 1);
  std::strncpy(progress.first_pending, "conv1.weight", sizeof progress.first_pending - 1);
  return progress;
}

double process_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

TEST_CASE("a board tells who has started, who has come and what the others do",
          "[dist][mpi][arrivals][A26]") {
  const std::string name = unique_name("all");
  const Board first = ArrivalBoard::attach(rank_of(0, 3, 3), name);
  REQUIRE(first);
  REQUIRE(first->arrivals(ArrivalBoard::kProcessStarted) ==
          "arrived: rank 0; missing: ranks 1 (not started), 2 (not started)");
  const Board second = join(*first, rank_of(1, 3, 3), name);
  REQUIRE(second);
  REQUIRE(first->arrivals(ArrivalBoard::kProcessStarted) ==
          "arrived: ranks 0, 1; missing: rank 2 (not started)");
  const Board third = join(*first, rank_of(2, 3, 3), name);
  REQUIRE(third);
  REQUIRE(second->all_came_to(ArrivalBoard::kProcessStarted));

  const ArrivalBoard::Place here = ArrivalBoard::place(1, 7);
  first->come_to(here);
  second->come_to(ArrivalBoard::place(1, 6));
  second->report(doing("backward", 4));
  third->come_to(ArrivalBoard::place(2, 1));  // In the next group, and so past this one.
  REQUIRE(first->arrivals(here) ==
          "arrived: ranks 0, 2; missing: rank 1 (backward of step 4, 3 of 62 gradients pending, first "
          "\"conv1.weight\")");
  REQUIRE_FALSE(first->all_came_to(here));
  second->report(doing("between steps", 5));  // The last word counts, as soon as it is said.
  REQUIRE_THAT(third->arrivals(here), ContainsSubstring("rank 1 (between steps of step 5"));
  second->come_to(ArrivalBoard::kEnd);
  REQUIRE(third->all_came_to(here));
}

TEST_CASE("a rank that a signal has stopped is named even if it has arrived", "[dist][mpi][arrivals][A26]") {
  const std::string name = unique_name("stopped");
  const Board board = ArrivalBoard::attach(rank_of(0, 2, 2), name);
  REQUIRE(board);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const Board own = ArrivalBoard::attach(rank_of(1, 2, 2), name);
    raise(own ? SIGSTOP : SIGKILL);
    _exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, WUNTRACED | WNOHANG) == 0) {
    board->serve();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  REQUIRE(WIFSTOPPED(status));
  REQUIRE(board->arrivals(ArrivalBoard::kProcessStarted) ==
          "arrived: ranks 0, 1; missing: none; rank 1 is stopped by a signal");
  kill(child, SIGCONT);
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(board->arrivals(ArrivalBoard::kProcessStarted) == "arrived: ranks 0, 1; missing: none");
}

TEST_CASE("when all have come, what they were doing tells who stopped inside the call", "[dist][failure]") {
  Progress busy;
  std::strncpy(busy.phase, "backward", sizeof busy.phase - 1);
  busy.step = 3;
  busy.pending = 2;
  busy.gradients = 6;
  std::strncpy(busy.first_pending, "conv1.weight", sizeof busy.first_pending - 1);
  REQUIRE(describe_arrivals({true, true}, {{}, busy}) ==
          "arrived: ranks 0, 1; missing: none; last heard of: rank 1 (backward of step 3, 2 of 6 gradients "
          "pending, first "
          "\"conv1.weight\")");
}

TEST_CASE("what is not seen on this host is not called missing", "[dist][mpi][arrivals]") {
  const std::string name = unique_name("hosts");
  const Board board = ArrivalBoard::attach(rank_of(2, 4, 2), name);
  REQUIRE(board);
  REQUIRE(board->arrivals(ArrivalBoard::kProcessStarted) ==
          "arrived: rank 2; missing: none; not known, on other hosts: ranks 0, 1, 3; of this host's 2 ranks "
          "1 did "
          "not start");
  const Board other = join(*board, rank_of(3, 4, 2), name);
  REQUIRE(other);
  board->come_to(ArrivalBoard::place(1, 1));
  REQUIRE(board->arrivals(ArrivalBoard::place(1, 1)) ==
          "arrived: rank 2; missing: rank 3; not known, on other hosts: ranks 0, 1");
}

TEST_CASE("a board goes with its job: the next one of that name is new", "[dist][mpi][arrivals]") {
  const std::string name = unique_name("again");
  for (int round = 0; round < 2; ++round) {
    const Board board = ArrivalBoard::attach(rank_of(round, 2, 2), name);
    REQUIRE(board);
    REQUIRE(board->arrivals(ArrivalBoard::kProcessStarted) ==
            str("arrived: rank ", round, "; missing: rank ", 1 - round, " (not started)"));
  }
}

TEST_CASE("a rank starts without a board if nobody hands it out", "[dist][mpi][arrivals]") {
  const std::string name = unique_name("deaf");
  const int deaf = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  REQUIRE(bind(deaf, reinterpret_cast<const sockaddr*>(&address),
               static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())) == 0);
  REQUIRE(listen(deaf, 1) == 0);
  REQUIRE(ArrivalBoard::attach(rank_of(0, 2, 2), name) == nullptr);
  close(deaf);
}

// Processor time, not time: a busy machine can only make it smaller.
TEST_CASE("waiting for a late rank costs little processor time", "[dist][mpi][ranks][arrivals]") {
  for_each_world([](ProcessGroup& group) {
    group.barrier().wait();
    if (group.rank() == group.size() - 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      group.barrier().wait();
      return;
    }
    const double before = process_seconds();
    group.barrier().wait();
    const double used = process_seconds() - before;
    require(used < 0.1, str("waiting 300 ms took ", used * 1e3, " ms of processor time"));
  });
}
