// SPDX-License-Identifier: MIT
// tests/fake_gpu/nccl_world.h - where the ranks of an emulated NCCL communicator meet: threads of one process, each on
// the thread of its stream; those of other processes come in by nccl_remote.h. Read before: tests/fake_gpu/fake_gpu.h.
// Read next: tests/fake_gpu/nccl.cpp, the library.
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

/// The ranks of a communicator, wherever they meet. Thread-safe. What waits for peers ends when this rank aborts, as
/// the real library's kernels do, and not before.
class NcclRanks {
 public:
  virtual ~NcclRanks() = default;
  virtual int size() const = 0;

  // On any thread.

  virtual void join(int rank, int device, bool may_share) = 0;
  virtual void leave(int rank) = 0;  ///< ncclCommFinalize
  virtual void abort(int rank) = 0;
  /// ncclInProgress while ranks are missing that have to join, or to leave after leave().
  virtual ncclResult_t state(int rank) = 0;
  virtual std::string last_error(int rank) = 0;

  // On the thread of the rank's stream. False: it was aborted, and nothing has arrived.

  virtual bool run(int rank, const NcclCall& call) = 0;
  virtual bool exchange(int rank, const std::vector<NcclMessage>& sends,
                        const std::vector<NcclMessage>& receives) = 0;
};

/// They meet here.
class NcclWorld final : public NcclRanks {
 public:
  explicit NcclWorld(int size);
  int size() const override { return size_; }
  void join(int rank, int device, bool may_share) override;
  void leave(int rank) override;
  void abort(int rank) override;
  ncclResult_t state(int rank) override;
  std::string last_error(int rank) override;
  bool run(int rank, const NcclCall& call) override;
  bool exchange(int rank, const std::vector<NcclMessage>& sends,
                const std::vector<NcclMessage>& receives) override;

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
