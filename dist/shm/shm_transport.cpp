// SPDX-License-Identifier: MIT
// dist/shm/shm_transport.cpp - every collective is one of two moves: show the tensor where it lies, or show copies of
// its pieces in staging memory, one behind the other.
#include "dist/shm/shm_transport.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "dist/chunks.h"
#include "dist/reduce_buffers.h"
#include "dist/shm/channels.h"
#include "dist/shm/meeting.h"

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

// What puts elements [begin, begin + n) of t into staging memory.
auto fill_from(const Tensor& t) {
  return [&t](std::byte* to, std::int64_t begin, std::int64_t n) {
    copy_bytes(to, element(t, begin), n * t.item_bytes());
  };
}

// The same for each of t's blocks (one a rank), side by side.
auto fill_blocks_from(const Tensor& t, int ranks) {
  return [&t, ranks](std::byte* to, std::int64_t begin, std::int64_t n) {
    const std::int64_t block = t.numel() / ranks, bytes = n * t.item_bytes();
    for (int r = 0; r < ranks; ++r) copy_bytes(to + r * bytes, element(t, r * block + begin), bytes);
  };
}

class ShmTransport final : public Transport {
 public:
  ShmTransport(std::shared_ptr<HostMemory> memory, int rank, ShmOptions options)
      : memory_(std::move(memory)),
        options_(std::move(options)),
        meeting_(memory_, rank),
        channels_(meeting_),
        shown_(static_cast<std::size_t>(size())) {}

  int rank() const override { return meeting_.rank(); }
  int size() const override { return meeting_.size(); }
  std::string_view name() const override { return options_.name; }
  bool any_thread() const override { return true; }

  Storage allocate_shared(std::int64_t bytes) override {
    const Storage storage = memory_->allocate(rank(), bytes);
    // The pages that others have just touched are entered into our mapping now.
    gate({.bytes = bytes, .offset = memory_->offset_of(rank(), storage.data(), bytes)});
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
    if (show(t)) {
      copy_bytes(t.raw(), at(root), t.bytes());
      meeting_.gate();
      return;
    }
    staged(
        t.numel(), t.item_bytes(), t.bytes(),
        [&](std::byte* to, std::int64_t begin, std::int64_t n) {
          if (rank() == root) copy_bytes(to, element(t, begin), n * t.item_bytes());
        },
        [&](std::int64_t begin, std::int64_t n) {
          if (rank() != root) copy_bytes(element(t, begin), at(root), n * t.item_bytes());
        });
  }

  void all_reduce(Tensor& t, Reduce op) override {
    if (show(t)) {
      reduce_slice(t, op, shown_);
      meeting_.gate();
      return;
    }
    const bool whole = size() == 2 || t.bytes() <= kWholeBytes;
    staged(t.numel(), t.item_bytes(), t.bytes(), fill_from(t), [&](std::int64_t begin, std::int64_t n) {
      if (whole) {
        std::byte* const target = element(t, begin);
        reduce_buffers(sources(0), {&target, 1}, t.dtype(), n, op);
        return;
      }
      // Each slice has one rank that reads it, so that its result may take the place of that rank's copy.
      const auto [first, last] = slice(n, t.item_bytes(), rank());
      std::byte* const target = at(rank()) + first * t.item_bytes();
      reduce_buffers(sources(first * t.item_bytes()), {&target, 1}, t.dtype(), last - first, op);
      meeting_.gate();
      for (int r = 0; r < size(); ++r) {
        const auto [from, to] = slice(n, t.item_bytes(), r);
        copy_bytes(element(t, begin + from), at(r) + from * t.item_bytes(), (to - from) * t.item_bytes());
      }
    });
  }

  void reduce(Tensor& t, Reduce op, int root) override {
    if (show(t)) {
      reduce_slice(t, op, {&shown_[static_cast<std::size_t>(root)], 1});
      meeting_.gate();
      return;
    }
    staged(t.numel(), t.item_bytes(), t.bytes(), fill_from(t), [&](std::int64_t begin, std::int64_t n) {
      std::byte* const target = element(t, begin);
      if (rank() == root) reduce_buffers(sources(0), {&target, 1}, t.dtype(), n, op);
    });
  }

  void reduce_scatter(const Tensor& t, Tensor& out, Reduce op) override {
    if (show(t)) {
      std::byte* const target = out.raw();
      reduce_buffers(sources(rank() * out.bytes()), {&target, 1}, t.dtype(), out.numel(), op);
      meeting_.gate();
      return;
    }
    staged(out.numel(), t.item_bytes() * size(), t.bytes(), fill_blocks_from(t, size()),
           [&](std::int64_t begin, std::int64_t n) {
             std::byte* const target = element(out, begin);
             reduce_buffers(sources(rank() * n * t.item_bytes()), {&target, 1}, t.dtype(), n, op);
           });
  }

  void all_gather(const Tensor& t, Tensor& out) override {
    if (show(t)) {
      for (int r = 0; r < size(); ++r) copy_bytes(element(out, r * t.numel()), at(r), t.bytes());
      meeting_.gate();
      return;
    }
    staged(t.numel(), t.item_bytes(), t.bytes(), fill_from(t), [&](std::int64_t begin, std::int64_t n) {
      for (int r = 0; r < size(); ++r)
        copy_bytes(element(out, r * t.numel() + begin), at(r), n * t.item_bytes());
    });
  }

  void gather(const Tensor& t, Tensor& out, int root) override {
    staged(t.numel(), t.item_bytes(), t.bytes(), fill_from(t), [&](std::int64_t begin, std::int64_t n) {
      for (int r = 0; r < size() && rank() == root; ++r)
        copy_bytes(element(out, r * t.numel() + begin), at(r), n * t.item_bytes());
    });
  }

  void scatter(const Tensor& t, Tensor& out, int root) override {
    const std::int64_t item = out.item_bytes();
    const auto fill = [&, blocks = fill_blocks_from(t, size())](std::byte* to, std::int64_t begin,
                                                                std::int64_t n) {
      if (rank() == root) blocks(to, begin, n);
    };
    staged(out.numel(), item * size(), out.bytes() * size(), fill, [&](std::int64_t begin, std::int64_t n) {
      copy_bytes(element(out, begin), at(root) + rank() * n * item, n * item);
    });
  }

  void all_to_all(const Tensor& t, Tensor& out) override {
    const std::int64_t block = t.numel() / size(), item = t.item_bytes();
    if (show(t)) {
      for (int r = 0; r < size(); ++r)
        copy_bytes(element(out, r * block), at(r) + rank() * block * item, block * item);
      meeting_.gate();
      return;
    }
    staged(block, item * size(), t.bytes(), fill_blocks_from(t, size()),
           [&](std::int64_t begin, std::int64_t n) {
             for (int r = 0; r < size(); ++r)
               copy_bytes(element(out, r * block + begin), at(r) + rank() * n * item, n * item);
           });
  }

  void barrier() override { gate({.bytes = 0, .offset = ShownData::kStaged}); }
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
    gate({.bytes = t.bytes(), .offset = memory_->offset_of(rank(), t.raw(), t.bytes())});
    bool all_shared = true;
    for (int r = 0; r < size(); ++r) {
      all_shared = all_shared && shown(r).offset >= 0;
      if (all_shared) shown_[static_cast<std::size_t>(r)] = memory_->at(r, shown(r).offset);
    }
    return all_shared;
  }

  // Piece after piece: fill(staging memory, begin, n), a gate, read(begin, n) with the ranks' pieces in shown_. The two
  // halves of the staging memory take turns, so that one gate a piece is enough: who has passed it has read the piece
  // before. `item_bytes` is what an element takes there, `bytes` what all ranks must agree on.
  template <class Fill, class Read>
  void staged(std::int64_t count, std::int64_t item_bytes, std::int64_t bytes, const Fill& fill,
              const Read& read) {
    const std::int64_t piece = HostMemory::kStagingBytes / item_bytes;
    BRIGADE_CHECK(piece > 0, "shared memory: too many ranks, ", size());
    std::int64_t begin = 0;
    do {  // Once for no elements, too: ranks that disagree about that would else wait at different gates.
      const std::int64_t n = std::min(piece, count - begin);
      fill(memory_->staging(rank(), 1 - half_), begin, n);
      gate({.bytes = bytes, .offset = ShownData::kStaged});
      for (int r = 0; r < size(); ++r) shown_[static_cast<std::size_t>(r)] = memory_->staging(r, half_);
      read(begin, n);
      begin += n;
    } while (begin < count);
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

  std::byte* at(int rank) const { return shown_[static_cast<std::size_t>(rank)]; }

  // shown_, `offset` bytes further.
  std::span<const std::byte* const> sources(std::int64_t offset) {
    sources_.clear();
    for (const std::byte* shown : shown_) sources_.push_back(shown + offset);
    return sources_;
  }

  // Slices end at cache lines, so that two ranks never write to the same one.
  std::pair<std::int64_t, std::int64_t> slice(std::int64_t count, std::int64_t item_bytes, int k) const {
    const std::int64_t line = kAlignment / item_bytes;
    const auto cut = [&](std::int64_t i) { return i == size() ? count : count * i / size() / line * line; };
    return {cut(k), cut(k + 1)};
  }

  // Reduces this rank's slice of the shown tensors into `targets`, which are some of them. Sources are in rank order,
  // whoever does the work: the result does not depend on timing, and is the same everywhere.
  void reduce_slice(const Tensor& t, Reduce op, std::span<std::byte* const> targets) {
    const auto [begin, end] = slice(t.numel(), t.item_bytes(), rank());
    const std::int64_t offset = begin * t.item_bytes();
    std::vector<std::byte*> outs;
    for (std::byte* target : targets) outs.push_back(target + offset);
    reduce_buffers(sources(offset), outs, t.dtype(), end - begin, op);
  }

  const std::shared_ptr<HostMemory> memory_;
  const ShmOptions options_;
  Meeting meeting_;
  Channels channels_;
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
