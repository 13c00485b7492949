// SPDX-License-Identifier: MIT
// dist/mpi/peer_watch.cpp - asleep until a process ends; now and then a look at the board.
#include "dist/mpi/peer_watch.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "dist/shm/process_end.h"

namespace brigade::dist {
namespace {

// How often to look for ranks that have started since, and for last words.
constexpr int kLookMilliseconds = 50;
// When a process has gone, the thread that waits for it finds out by itself where ranks share memory, and can say more
// and leave whole files. Open MPI's launcher gives a second.
constexpr std::chrono::milliseconds kForTheRank{400};

}  // namespace

PeerWatch::PeerWatch(const LaunchEnvironment& self, std::shared_ptr<ArrivalBoard> board,
                     std::function<void(const std::string&)> lost)
    : self_(self), board_(std::move(board)), lost_(std::move(lost)), stop_(eventfd(0, EFD_CLOEXEC)) {
  // The launcher of ranks is the parent; apps/launch, if there is one, that launcher's.
  std::vector<pid_t> launchers{getppid()};
  if (const char* const above = std::getenv("BRIGADE_LAUNCHER"); above != nullptr)
    launchers.push_back(process_of(above));
  bool sees_all = true;
  for (const pid_t launcher : launchers) {
    if (launcher <= 1) continue;
    watched_.push_back({.rank = -1, .process = launcher, .alive = open_process(launcher)});
    sees_all = sees_all && watched_.back().alive;
  }
  board_->set_watched(sees_all && getppid() > 1);
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "watch");
    // Signals are for the threads that know what to do with them.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    watch();
  });
}

PeerWatch::~PeerWatch() {
  const std::uint64_t one = 1;
  static_cast<void>(!write(stop_.get(), &one, sizeof one));
  thread_.join();
  board_->set_watched(false);
}

void PeerWatch::look_for_peers() {
  for (int rank = 0; rank < self_.size; ++rank) {
    const pid_t process = board_->process(rank);
    const bool known =
        std::any_of(watched_.begin(), watched_.end(), [&](const Watched& w) { return w.rank == rank; });
    if (rank == self_.rank || process == 0 || known) continue;
    watched_.push_back({.rank = rank, .process = process, .alive = open_process(process)});
    watched_.back().ended = !watched_.back().alive && errno == ESRCH;
  }
}

// What its end, or its last word, means for this rank; nothing if all is well.
std::string PeerWatch::word_of(const Watched& watched) const {
  if (watched.rank < 0)
    return watched.ended ? str("the launcher (process ", watched.process, ") is gone") : std::string();
  const auto word = board_->last_words(watched.rank);
  if (word) return word->empty() ? "" : str("rank ", watched.rank, " failed: ", *word);
  if (!watched.ended) return "";
  return describe_lost(watched.rank, watched.process, board_->progress(watched.rank));
}

void PeerWatch::watch() {
  while (true) {
    look_for_peers();
    std::vector<pollfd> events{{.fd = stop_.get(), .events = POLLIN, .revents = 0},
                               {.fd = board_->door(), .events = POLLIN, .revents = 0}};
    for (const Watched& w : watched_)  // poll() overlooks negative descriptors.
      events.push_back({.fd = w.ended ? -1 : w.alive.get(), .events = POLLIN, .revents = 0});
    poll(events.data(), events.size(), kLookMilliseconds);
    if (events[0].revents != 0) return;
    if (events[1].revents != 0) board_->serve();
    for (std::size_t i = 0; i < watched_.size(); ++i)
      watched_[i].ended = watched_[i].ended || events[i + 2].revents != 0;
    for (const Watched& w : watched_) {
      if (const std::string word = word_of(w); !word.empty()) {
        if (!stopped_while_others_learn()) lost_(word);
        return;
      }
    }
  }
}

// Ranks that start only now find the board, although who made it may have gone.
bool PeerWatch::stopped_while_others_learn() {
  board_->take_over();
  for (const auto end = Clock::now() + kForTheRank; Clock::now() < end;) {
    pollfd stop{.fd = stop_.get(), .events = POLLIN, .revents = 0};
    if (poll(&stop, 1, 5) > 0) return true;
    board_->serve();
  }
  return false;
}

}  // namespace brigade::dist
