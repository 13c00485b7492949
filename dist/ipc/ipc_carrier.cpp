// SPDX-License-Identifier: MIT
// dist/ipc/ipc_carrier.cpp - lending and borrowing, the proof that it works, and the gates in between.
#include "dist/ipc/ipc_carrier.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "core/cuda/check_cuda.h"
#include "core/cuda/devices.h"
#include "core/cuda/lent_memory.h"
#include "core/cuda/stream_cuda.h"
#include "dist/job_watch.h"
#include "dist/reduce_buffers.h"
#include "dist/staged/staged_carrier.h"
#include "dist/staged_moves.h"
#include "kernels/cuda/device/device_kernels.h"

namespace brigade::dist {
namespace {

// Up to here a second gate, for which hosts have to meet, takes longer than to read everything. Not measured yet.
constexpr std::int64_t kWholeBytes = 256 * 1024;
// CUDA cuts smaller allocations from larger ones, and its handles are of those.
constexpr std::int64_t kLeastBytes = std::int64_t{2} << 20;

// What a rank writes for the others to find: nothing that memory holds by chance.
constexpr std::int64_t kProofWords = 64;
std::uint64_t proof(int rank, std::int64_t i) {
  return 0x9e3779b97f4a7c15u * static_cast<std::uint64_t>(rank * kProofWords + i + 1);
}

// The first rank that has something to say, and what.
std::string first_of(const std::vector<std::string>& texts) {
  for (std::size_t r = 0; r < texts.size(); ++r)
    if (!texts[r].empty()) return str("rank ", r, ": ", texts[r]);
  return "";
}

template <class Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

class IpcCarrier final : public Carrier, private Staging {
 public:
  IpcCarrier(Transport& host, Device device, std::int64_t half_bytes)
      : host_(host), device_(device), half_bytes_(half_bytes), staged_(make_staged_carrier(host, device)) {
    BRIGADE_CHECK(half_bytes >= kAlignment && half_bytes % kAlignment == 0,
                  "ipc: a half must have a multiple of ", kAlignment, " bytes; got ", half_bytes);
  }
  IpcCarrier(const IpcCarrier&) = delete;  // moves_ looks at this one.
  IpcCarrier& operator=(const IpcCarrier&) = delete;

  // The rest of the construction: why not, the same on all ranks; empty: it works. Errors of one rank are told to all
  // at each of the three meetings, so that nobody waits for one that has given up.
  std::string connect() {
    std::string handles,
        error = error_of([&] {
          lent_ = std::make_unique<LentMemory>(device_.index, std::max(2 * half_bytes_, kLeastBytes));
          std::uint64_t words[kProofWords];
          for (std::int64_t i = 0; i < kProofWords; ++i) words[i] = proof(rank(), i);
          runtime(device_).copy_from_host(lent_->data(), words, sizeof words);
          handles = lent_->handles();
          lent_->record(0, stream());
        });
    const std::vector<std::string> processes = gather_texts(host_, name_of_this_process());
    const std::vector<std::string> all_handles = gather_texts(host_, handles);
    std::string refused = first_of(gather_texts(host_, error));
    if (refused.empty()) {
      error = error_of([&] { borrow(all_handles, processes); });
      refused = first_of(gather_texts(host_, error));
    }
    if (!refused.empty()) static_cast<void>(error_of([&] { disconnect(); }));
    return refused;
  }

  std::string name() const override { return one_process_ ? "memory of the device" : "CUDA IPC"; }
  std::string why_not_captured() const override {
    return "here ranks share a GPU and meet on the host before they read each other's memory";
  }

  void send(const Tensor& t, int to) override { staged_->send(t, to); }
  void recv(Tensor& t, int from) override { staged_->recv(t, from); }
  void send_recv(const Tensor& sent, int to, Tensor& received, int from) override {
    staged_->send_recv(sent, to, received, from);
  }
  void broadcast(Tensor& t, int root) override { moves_.broadcast(t, root); }
  void all_reduce(Tensor& t, Reduce op) override { moves_.all_reduce(t, op); }
  void reduce(Tensor& t, Reduce op, int root) override { moves_.reduce(t, op, root); }
  void reduce_scatter(const Tensor& t, Tensor& out, Reduce op) override { moves_.reduce_scatter(t, out, op); }
  void all_gather(const Tensor& t, Tensor& out) override { moves_.all_gather(t, out); }
  void gather(const Tensor& t, Tensor& out, int root) override { moves_.gather(t, out, root); }
  void scatter(const Tensor& t, Tensor& out, int root) override { moves_.scatter(t, out, root); }
  void all_to_all(const Tensor& t, Tensor& out) override { moves_.all_to_all(t, out); }

  void close() override { disconnect(); }

 private:
  void borrow(const std::vector<std::string>& handles, const std::vector<std::string>& processes) {
    for (int r = 0; r < size(); ++r) {
      const auto at = static_cast<std::size_t>(r);
      const bool own = processes[at] == processes[static_cast<std::size_t>(rank())];
      one_process_ = one_process_ && own;
      borrowed_.push_back(std::make_unique<BorrowedMemory>(device_.index, handles[at], own));
      borrowed_.back()->wait(0, stream());
      std::uint64_t words[kProofWords];
      runtime(device_).copy_to_host(words, borrowed_.back()->data(), sizeof words);
      for (std::int64_t i = 0; i < kProofWords; ++i)
        BRIGADE_CHECK(words[i] == proof(r, i), "what rank ", r, " wrote is not what is found");
    }
  }

  // All ranks give back, and only then free what peers may still read. Collective.
  void disconnect() {
    const std::string error = error_of([&] {
      use_cuda_device(device_.index);
      check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize", "before memory is given back");
      for (const auto& memory : std::exchange(borrowed_, {})) memory->give_back();
    });
    host_.barrier();  // Also with an error: the others wait here.
    if (!error.empty()) throw CommError(error);
    if (lent_) std::exchange(lent_, nullptr)->free();
  }

  // What moves_ asks for.
  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  std::int64_t half_bytes() const override { return half_bytes_; }
  std::int64_t whole_bytes() const override { return kWholeBytes; }
  std::byte* filling() override { return lent_->data() + (1 - half_) * half_bytes_; }
  std::byte* at(int rank) const override {
    return borrowed_[static_cast<std::size_t>(rank)]->data() + half_ * half_bytes_;
  }
  void gate(std::int64_t bytes) override {
    half_ = 1 - half_;
    meet(bytes);
  }
  void gate_again() override { meet(kAgain); }
  void copy(std::byte* to, const std::byte* from, std::int64_t bytes) override {
    if (to != from) runtime(device_).copy_on_device(to, from, bytes);
  }
  void reduce(std::span<const std::byte* const> from, std::byte* out, DType dtype, std::int64_t count,
              Reduce op) override {
    device::Sources sources;
    sources.count = static_cast<int>(from.size());
    std::copy(from.begin(), from.end(), sources.at);
    check_cuda(device::reduce_sources(reduction_of(op), dtype, sources, out, count, stream()),
               "reduce_sources", "on ", device_);
  }

  // A gate of the device. An event says how far this rank's stream must have come; the hosts meet, so that it is known
  // to be recorded; then this stream waits for everybody's. Who records an event again has met the others once more
  // since, and they have enqueued their waits by then: hence two of them.
  void meet(std::int64_t bytes) {
    const int event = event_;
    event_ = 1 - event_;
    lent_->record(event, stream());
    mine_.data<std::int64_t>()[0] = bytes;
    host_.all_gather_control(mine_, all_);
    const auto* const theirs = all_.data<std::int64_t>();
    if (!std::all_of(theirs, theirs + size(), [bytes](std::int64_t other) { return other == bytes; })) {
      std::string sizes;
      for (int r = 0; r < size(); ++r) sizes += str(r > 0 ? ", " : "", theirs[r]);
      throw CommError(str("the ranks came with tensors of different sizes: ", sizes, " bytes"));
    }
    for (int r = 0; r < size(); ++r)
      if (r != rank()) borrowed_[static_cast<std::size_t>(r)]->wait(event, stream());
  }

  cudaStream_t stream() const { return current_cuda_stream(device_); }

  static constexpr std::int64_t kAgain = -1;

  Transport& host_;
  const Device device_;
  const std::int64_t half_bytes_;
  const std::unique_ptr<Carrier> staged_;
  std::unique_ptr<LentMemory> lent_;
  std::vector<std::unique_ptr<BorrowedMemory>> borrowed_;  // By rank; its own is the lent one.
  bool one_process_ = true;
  int half_ = 0, event_ = 0;
  Tensor mine_ = Tensor::zeros({1}, DType::i64), all_ = Tensor::zeros({host_.size()}, DType::i64);
  StagedMoves moves_{*this};
};

}  // namespace

std::unique_ptr<Carrier> make_ipc_carrier(Transport& host, Device device, std::string& why_not,
                                          std::int64_t half_bytes) {
  auto carrier = std::make_unique<IpcCarrier>(host, device, half_bytes);
  why_not = carrier->connect();
  if (!why_not.empty()) return nullptr;
  return carrier;
}

}  // namespace brigade::dist
