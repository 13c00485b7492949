// SPDX-License-Identifier: MIT
// dist/shm/shm_transport.cpp - every collective is one of two moves: show the tensor where it lies, or show copies of
// its pieces in staging memory, one behind the other.
#include "dist/shm/shm_transport.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "dist/reduce_buffers.h"
#include "dist/shm/channels.h"
#include "dist/shm/meeting.h"
#include "dist/staged_moves.h"

namespace brigade::dist {
namespace {

// From here on a tensor in shared memory is worth two gates; a shorter one is staged, which takes one. A gate costs a
// fraction of a microsecond where every rank has a core, and some 20 where they have to take turns.
constexpr std::int64_t kDirectBytes = 8 * 1024, kDirectBytesInTurns = 64 * 1024;
// Up to here every rank reduces all of a staged piece for itself; a longer one is cut into slices, for one gate more.
constexpr std::int64_t kWholeBytes = 64 * 1024;

void copy_bytes(std::byte* to, const std::byte* from, std::int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

std::byte* element(const Tensor& t, std::int64_t i) { return t.raw() + i * t.item_bytes(); }

class ShmTransport final : public Transport, private Staging {
 public:
  ShmTransport(std::shared_ptr<HostMemory> memory, int rank, ShmOptions options)
      : memory_(std::move(memory)),
        options_(std::move(options)),
        meeting_(memory_, rank),
        channels_(meeting_),
        shown_(static_cast<std::size_t>(size())) {}
  ShmTransport(const ShmTransport&) = delete;  // moves_ looks at this one.
  ShmTransport& operator=(const ShmTransport&) = delete;

  int rank() const override { return meeting_.rank(); }
  int size() const override { return meeting_.size(); }
  std::string_view name() const override { return options_.name; }
  bool any_thread() const override { return true; }

  Storage allocate_shared(std::int64_t bytes) override {
    const Storage storage = memory_->allocate(rank(), bytes);
    // The pages that others have just touched are entered into our mapping now.
    gate(ShownData{.bytes = bytes, .offset = memory_->offset_of(rank(), storage.data(), bytes)});
    for (int r = 0; r < size(); ++r)
      if (r != rank() && shown(r).offset >= 0) memory_->map_pages(r, shown(r).offset, bytes);
    meeting_.gate();
    return storage;
  }

  void send(const Tensor& t, int to) override { channels_.exchange(&t, to, nullptr, -1); }
  void recv(Tensor& t, int from) override { channels_.exchange(nullptr, -1, &t, from); }
  void send_recv(const Tensor& sent, int to, Tensor& received, int from) override {
    channels_.exchange(&sent, to, &received, from);
  }

  void broadcast(Tensor& t, int root) override {
    if (!show(t)) return moves_.broadcast(t, root);
    copy_bytes(t.raw(), at(root), t.bytes());
    meeting_.gate();
  }

  void all_reduce(Tensor& t, Reduce op) override {
    if (!show(t)) return moves_.all_reduce(t, op);
    reduce_slice(t, op, shown_);
    meeting_.gate();
  }

  void reduce(Tensor& t, Reduce op, int root) override {
    if (!show(t)) return moves_.reduce(t, op, root);
    reduce_slice(t, op, {&shown_[static_cast<std::size_t>(root)], 1});
    meeting_.gate();
  }

  void reduce_scatter(const Tensor& t, Tensor& out, Reduce op) override {
    if (!show(t)) return moves_.reduce_scatter(t, out, op);
    std::byte* const target = out.raw();
    reduce_buffers(sources(rank() * out.bytes()), {&target, 1}, t.dtype(), out.numel(), op);
    meeting_.gate();
  }

  void all_gather(const Tensor& t, Tensor& out) override {
    if (!show(t)) return moves_.all_gather(t, out);
    for (int r = 0; r < size(); ++r) copy_bytes(element(out, r * t.numel()), at(r), t.bytes());
    meeting_.gate();
  }

  void gather(const Tensor& t, Tensor& out, int root) override { moves_.gather(t, out, root); }
  void scatter(const Tensor& t, Tensor& out, int root) override { moves_.scatter(t, out, root); }

  void all_to_all(const Tensor& t, Tensor& out) override {
    if (!show(t)) return moves_.all_to_all(t, out);
    const std::int64_t bytes = t.bytes() / size();
    for (int r = 0; r < size(); ++r) copy_bytes(out.raw() + r * bytes, at(r) + rank() * bytes, bytes);
    meeting_.gate();
  }

  void barrier() override { gate(ShownData{.bytes = 0, .offset = ShownData::kStaged}); }
  void meet() override { meeting_.gate(); }
  void report(const Progress& progress) noexcept override {
    if (options_.on_report) options_.on_report(progress);
    meeting_.report(progress);
  }
  std::string arrivals() const override {
    const std::optional<std::string> message = channels_.arrivals();
    return message ? *message : meeting_.arrivals();
  }
  std::optional<std::string> failure() const override {
    try {
      meeting_.check_alive();
    } catch (const CommError& e) {
      return e.what();
    }
    return std::nullopt;
  }
  void abort(const std::string& reason) noexcept override {
    if (options_.on_abort) options_.on_abort();
    meeting_.abort(reason);
  }
  void close() override { barrier(); }

 private:
  // One gate behind which shown_ holds every rank's tensor as this process sees it: true. Or false, on all ranks alike:
  // the tensor is short, or not all of them lie in shared memory. After true, a second gate lets them go.
  bool show(const Tensor& t) {
    if (t.bytes() < (meeting_.has_cores() ? kDirectBytes : kDirectBytesInTurns)) return false;
    gate(ShownData{.bytes = t.bytes(), .offset = memory_->offset_of(rank(), t.raw(), t.bytes())});
    bool all_shared = true;
    for (int r = 0; r < size(); ++r) {
      all_shared = all_shared && shown(r).offset >= 0;
      if (all_shared) shown_[static_cast<std::size_t>(r)] = memory_->at(r, shown(r).offset);
    }
    return all_shared;
  }

  // What moves_ asks for. A short piece is reduced whole.
  std::int64_t half_bytes() const override { return HostMemory::kStagingBytes; }
  std::int64_t whole_bytes() const override { return kWholeBytes; }
  std::byte* filling() override { return memory_->staging(rank(), 1 - half_); }
  void gate(std::int64_t bytes) override {
    gate(ShownData{.bytes = bytes, .offset = ShownData::kStaged});
    for (int r = 0; r < size(); ++r) shown_[static_cast<std::size_t>(r)] = memory_->staging(r, half_);
  }
  void gate_again() override { meeting_.gate(); }
  std::byte* at(int rank) const override { return shown_[static_cast<std::size_t>(rank)]; }
  void copy(std::byte* to, const std::byte* from, std::int64_t bytes) override {
    copy_bytes(to, from, bytes);
  }
  void reduce(std::span<const std::byte* const> from, std::byte* out, DType dtype, std::int64_t count,
              Reduce op) override {
    reduce_buffers(from, {&out, 1}, dtype, count, op);
  }

  // A gate that only ranks with equal sizes pass, and only with the same of the two moves: who staged a short tensor
  // must not reduce with one who shows a long one. All ranks see the same, hence all of them throw, or none does.
  void gate(const ShownData& mine) {
    half_ = 1 - half_;
    meeting_.mine().shown[half_] = mine;
    meeting_.gate();
    bool same_bytes = true, same_move = true;
    for (int r = 0; r < size(); ++r) {
      same_bytes = same_bytes && shown(r).bytes == mine.bytes;
      same_move = same_move && (shown(r).offset == ShownData::kStaged) == (mine.offset == ShownData::kStaged);
    }
    if (same_bytes && same_move) return;
    if (same_bytes) throw CommError("the ranks came with different collectives");
    std::string sizes;
    for (int r = 0; r < size(); ++r) sizes += str(r > 0 ? ", " : "", shown(r).bytes);
    throw CommError(str("the ranks came with tensors of different sizes: ", sizes, " bytes"));
  }

  // What rank `rank` brought to the last gate(…).
  const ShownData& shown(int rank) const { return memory_->block(rank).shown[half_]; }

  // shown_, `offset` bytes further.
  std::span<const std::byte* const> sources(std::int64_t offset) {
    sources_.clear();
    for (const std::byte* shown : shown_) sources_.push_back(shown + offset);
    return sources_;
  }

  // Reduces this rank's slice of the shown tensors into `targets`, which are some of them. Sources are in rank order,
  // whoever does the work: the result does not depend on timing, and is the same everywhere.
  void reduce_slice(const Tensor& t, Reduce op, std::span<std::byte* const> targets) {
    const auto [begin, end] = slice_of(t.numel(), t.item_bytes(), rank(), size());
    const std::int64_t offset = begin * t.item_bytes();
    std::vector<std::byte*> outs;
    for (std::byte* target : targets) outs.push_back(target + offset);
    reduce_buffers(sources(offset), outs, t.dtype(), end - begin, op);
  }

  const std::shared_ptr<HostMemory> memory_;
  const ShmOptions options_;
  Meeting meeting_;
  Channels channels_;
  StagedMoves moves_{*this};
  int half_ = 0;                           // Of the staging memory and of RankBlock::shown, used last.
  std::vector<std::byte*> shown_;          // By rank: what read() and the like look at.
  std::vector<const std::byte*> sources_;  // Kept, so that no call allocates.
};

}  // namespace

std::unique_ptr<Transport> make_shm_transport(std::shared_ptr<HostMemory> memory, int rank,
                                              ShmOptions options) {
  return std::make_unique<ShmTransport>(std::move(memory), rank, std::move(options));
}

}  // namespace brigade::dist
