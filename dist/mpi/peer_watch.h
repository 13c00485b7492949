// SPDX-License-Identifier: MIT
// dist/mpi/peer_watch.h - the watch over the ranks of an MPI job on this host. Read before: dist/job_watch.h,
// dist/mpi/arrival_board.h.
#pragma once

#include <thread>
#include <vector>

#include "dist/job_watch.h"
#include "dist/mpi/arrival_board.h"

namespace brigade::dist {

/// One descriptor a process (pidfd), which tells of its end within microseconds, also before its parent has asked for
/// its exit code. Ranks that end with a word say it on the board.
class PeerWatch final : public JobWatch {
 public:
  PeerWatch(const LaunchEnvironment& self, std::shared_ptr<ArrivalBoard> board,
            std::function<void(const std::string&)> lost);
  ~PeerWatch() override;
  void leave(const std::string& error) noexcept override { board_->leave(error); }
  std::optional<std::string> words_of(int rank) const override { return board_->last_words(rank); }

 private:
  struct Watched {
    int rank;  // -1: the launcher.
    pid_t process;
    Descriptor alive;
    bool ended = false;
  };
  void watch();
  bool stopped_while_others_learn();
  void look_for_peers();
  std::string word_of(const Watched& watched) const;

  const LaunchEnvironment self_;
  const std::shared_ptr<ArrivalBoard> board_;
  const std::function<void(const std::string&)> lost_;
  Descriptor stop_;  // An eventfd.
  std::vector<Watched> watched_;
  std::thread thread_;
};

}  // namespace brigade::dist
