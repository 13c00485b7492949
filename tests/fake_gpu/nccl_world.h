// SPDX-License-Identifier: MIT
// tests/fake_gpu/nccl_world.h - where the ranks of an emulated NCCL communicator meet: threads of one process, each on
// the thread of its stream. Read before: tests/fake_gpu/fake_gpu.h. Read next: tests/fake_gpu/nccl.cpp, the library.
#pragma once

#include <nccl.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace fake_gpu {

/// What one rank asks for. All but the pointers must be the same on every rank.
struct NcclCall {
  enum class What : std::uint8_t { all_reduce, reduce, broadcast, all_gather, reduce_scatter } what;
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t op = ncclSum;
  int root = -1;

  std::string text() const;
  bool matches(const NcclCall& other) const {
    return what == other.what && count == other.count && type == other.type && op == other.op &&
           root == other.root;
  }
};

struct NcclMessage {
  void* data = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  int peer = 0;
};

std::size_t nccl_size_of(ncclDataType_t type);

/// Thread-safe. What waits for peers ends when this rank aborts, as the real library's kernels do, and not before.
class NcclWorld {
 public:
  explicit NcclWorld(int size);
  int size() const { return size_; }

  // On any thread.

  void join(int rank, int device, bool may_share);
  void leave(int rank);  ///< ncclCommFinalize
  void abort(int rank);
  void fail(int rank, ncclResult_t code, const std::string& text);
  /// ncclInProgress while ranks are missing that have to join, or to leave after leave().
  ncclResult_t state(int rank);
  std::string last_error(int rank);

  // On the thread of the rank's stream.

  void run(int rank, const NcclCall& call);
  void exchange(int rank, const std::vector<NcclMessage>& sends, const std::vector<NcclMessage>& receives);

 private:
  struct Rank {
    int device = -1;
    bool joined = false, leaving = false, aborted = false;
    ncclResult_t error = ncclSuccess;
    std::string text;
    std::uint64_t calls = 0;
  };
  struct Meeting {
    std::vector<NcclCall> calls;
    std::vector<bool> here;
    int count = 0;
    bool over = false;
  };
  struct Letter {
    NcclMessage message;
    bool taken = false;
  };
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  void finish(Meeting& meeting);

  const int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Rank> ranks_;
  std::map<std::uint64_t, Meeting> meetings_;                   // By number of the call.
  std::map<std::pair<int, int>, std::deque<Letter*>> letters_;  // From, to.
  std::optional<std::pair<int, std::uint64_t>> hangs_,
      breaks_;  // Rank and call: what a test wants to go wrong.
};

}  // namespace fake_gpu
