// SPDX-License-Identifier: MIT
// tests/dist/peer_watch_test.cpp - what a rank learns of another process's end, and when it is none of its business.
// Ranks of a real job: tests/apps/faults_test.py.
#include "dist/mpi/peer_watch.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <future>

#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::dist;

namespace {

LaunchEnvironment rank_of(int rank, int size) {
  return {.mpi = true, .rank = rank, .size = size, .local_size = size};
}
LaunchEnvironment rank_of_two(int rank) { return rank_of(rank, 2); }

// Rank 0's watch, and rank 1 as a process that takes its place on the board and then sleeps.
class Pair {
 public:
  explicit Pair(const std::string& test)
      : name_(str("brigade-watch-", getpid(), "-", test)),
        board_(ArrivalBoard::attach(rank_of_two(0), name_, ArrivalBoard::kNowhere)),
        watch_(rank_of_two(0), board_, [this](const std::string& text) { lost_.set_value(text); }) {}
  ~Pair() {
    if (child_ > 0) end(SIGKILL);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  // `doing`: what it reports; `last_words`: what it leaves, if it does.
  void start(const std::string& doing, const std::optional<std::string>& last_words = {}) {
    child_ = fork();
    if (child_ == 0) {
      const auto board = ArrivalBoard::attach(rank_of_two(1), name_);
      Progress progress{.step = 7};
      doing.copy(progress.phase, sizeof progress.phase - 1);
      if (board && !doing.empty()) board->report(progress);
      if (board && last_words) board->leave(*last_words);
      while (true) pause();
    }
    while (board_->process(1) == 0) usleep(1000);
    usleep(100'000);  // What it says next.
  }
  void end(int signal) {
    kill(child_, signal);
    waitpid(child_, nullptr, 0);
    child_ = -1;
  }
  pid_t child() const { return child_; }
  // What the watch says within `patience`; nothing if it is silent.
  std::string word(std::chrono::milliseconds patience = std::chrono::seconds(10)) {
    return heard_.wait_for(patience) == std::future_status::ready ? heard_.get() : "";
  }
  PeerWatch& watch() { return watch_; }
  ArrivalBoard& board() { return *board_; }

 private:
  std::promise<std::string> lost_;
  std::future<std::string> heard_ = lost_.get_future();
  const std::string name_;
  const std::shared_ptr<ArrivalBoard> board_;
  PeerWatch watch_;
  pid_t child_ = -1;
};

}  // namespace

TEST_CASE("a rank that is killed is named with what it was doing, at once", "[dist][mpi][watch]") {
  Pair pair("killed");
  pair.start("backward");
  const pid_t child = pair.child();
  const auto begin = Clock::now();
  pair.end(SIGKILL);
  REQUIRE(pair.word() == str("rank 1 (process ", child, ") is gone; it was last in backward of step 7"));
  REQUIRE(Clock::now() - begin < std::chrono::seconds(5));
}

TEST_CASE("a rank that is killed before it has reported anything is named, too", "[dist][mpi][watch]") {
  Pair pair("early");
  pair.start("");
  const pid_t child = pair.child();
  pair.end(SIGKILL);
  REQUIRE(pair.word() == str("rank 1 (process ", child, ") is gone; it had not joined the others"));
}

TEST_CASE("a rank that starts when the one that made the board has gone learns why the others end",
          "[dist][mpi][watch]") {
  const std::string name = str("brigade-watch-", getpid(), "-heir");
  int there[2];
  REQUIRE(pipe(there) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto board = ArrivalBoard::attach(rank_of(1, 3), name);
    static_cast<void>(!write(there[1], "", 1));
    while (board) board->serve(), usleep(1000);
    _exit(1);
  }
  char word = 0;
  REQUIRE(read(there[0], &word, 1) == 1);
  close(there[0]), close(there[1]);
  const auto first = ArrivalBoard::attach(rank_of(0, 3), name);
  std::promise<std::string> lost;
  const PeerWatch watch(rank_of(0, 3), first, [&](const std::string& text) { lost.set_value(text); });
  const auto process_of_rank_1 = first->process(1);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  REQUIRE(process_of_rank_1 == child);
  for (int i = 0; i < 2000 && first->door() < 0; ++i) usleep(1000);  // Until it serves.
  const auto late = ArrivalBoard::attach(rank_of(2, 3), name);
  CHECK(late->process(1) == child);
  const std::string text = lost.get_future().get();
  CHECK(text == str("rank 1 (process ", child, ") is gone; it had not joined the others"));
  first->leave(text);
  CHECK(late->last_words(0) == text);
}

TEST_CASE("a rank that fails is heard before it has ended", "[dist][mpi][watch]") {
  Pair pair("failed");
  pair.start("backward", "no such file: data.bin");
  REQUIRE(pair.word() == "rank 1 failed: no such file: data.bin");
}

TEST_CASE("a rank that ends in order, or is only stopped, is no loss", "[dist][mpi][watch]") {
  Pair pair("order");
  pair.start("backward", "");
  kill(pair.child(), SIGSTOP);
  REQUIRE(pair.word(std::chrono::milliseconds(300)).empty());
  pair.end(SIGKILL);
  REQUIRE(pair.word(std::chrono::milliseconds(300)).empty());
}

TEST_CASE("the first last words of a rank are the ones that count", "[dist][mpi][watch]") {
  Pair pair("words");
  REQUIRE_FALSE(pair.board().last_words(0));
  pair.watch().leave("disk full");
  pair.watch().leave("");
  REQUIRE(pair.board().last_words(0) == "disk full");
  REQUIRE(pair.board().watched());
}
