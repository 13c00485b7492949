// SPDX-License-Identifier: MIT
// core/cuda/caching_allocator.cpp - blocks, their neighbours, and when they may be used again.
#include "core/cuda/caching_allocator.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace brigade {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kUnit = 512;    // All sizes are multiples of it: whole cache lines and more.
constexpr std::int64_t kSmall = kMiB;  // Blocks up to here share segments of …
constexpr std::int64_t kSmallSegment = 2 * kMiB;
constexpr std::int64_t kLarge = 10 * kMiB;  // Up to here, segments of …
constexpr std::int64_t kLargeSegment = 20 * kMiB;
constexpr std::int64_t kRoundSegment =
    2 * kMiB;  // And beyond, segments of their own size, rounded up to this.

constexpr std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

std::int64_t segment_size(std::int64_t size) {
  if (size <= kSmall) return kSmallSegment;
  return size < kLarge ? kLargeSegment : round_up(size, kRoundSegment);
}

std::string mebibytes(std::int64_t bytes) { return str((bytes + kMiB - 1) / kMiB, " MiB"); }

}  // namespace

// By the size of the segment, which all blocks cut from it keep.
CachingAllocator::Free& CachingAllocator::free_of(const Block& block) {
  return segments_.at(block.segment) == kSmallSegment ? small_ : large_;
}

void CachingAllocator::insert_free(Blocks::iterator block) {
  free_of(block->second).insert({block->second.pool, block->second.stream, block->second.size, block->first});
}
void CachingAllocator::erase_free(Blocks::iterator block) {
  free_of(block->second).erase({block->second.pool, block->second.stream, block->second.size, block->first});
}

void* CachingAllocator::allocate(std::int64_t bytes, StreamKey stream) {
  BRIGADE_CHECK(bytes >= 0 && bytes < std::int64_t{1} << 48, "allocate: cannot hold ", bytes, " bytes");
  const std::int64_t size = round_up(std::max(bytes, kUnit), kUnit);
  std::lock_guard lock(mutex_);
  if (capturing_ == 0) look_at_waiting();
  auto block = find_free(size, stream);
  if (block == blocks_.end()) block = new_segment(size, stream);
  if (block == blocks_.end() && capturing_ == 0) {
    // Before we fail: what other streams still use, and what is cached for others or in pieces too small.
    wait_for_waiting();
    block = find_free(size, stream);
    if (block == blocks_.end()) {
      trim_locked();
      block = new_segment(size, stream);
    }
  }
  if (block == blocks_.end()) fail(out_of_memory(bytes));
  erase_free(block);
  stats_.cached_bytes -= block->second.size;
  split(block, size);
  block->second.state = State::used;
  stats_.in_use_bytes += block->second.size;
  stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.in_use_bytes);
  return block->first;
}

CachingAllocator::Blocks::iterator CachingAllocator::find_free(std::int64_t size, StreamKey stream) {
  const Free& free = size <= kSmall ? small_ : large_;
  const auto found = free.lower_bound({capturing_, stream, size, nullptr});
  if (found == free.end() || std::get<0>(*found) != capturing_ || std::get<1>(*found) != stream)
    return blocks_.end();
  return blocks_.find(std::get<3>(*found));
}

// A free block as large as the segment; the end if the device has no more.
CachingAllocator::Blocks::iterator CachingAllocator::new_segment(std::int64_t size, StreamKey stream) {
  const std::int64_t bytes = segment_size(size);
  auto* const memory = static_cast<std::byte*>(device_.allocate(bytes));
  if (memory == nullptr) return blocks_.end();
  ++stats_.system_allocations;
  stats_.cached_bytes += bytes;
  segments_[memory] = bytes;
  const auto block =
      blocks_.emplace(memory, Block{.size = bytes, .segment = memory, .stream = stream, .pool = capturing_})
          .first;
  insert_free(block);
  return block;
}

// Leaves the rest of `block` behind as a free block, if it is worth it: of a large segment small rests would only be
// in the way.
void CachingAllocator::split(Blocks::iterator block, std::int64_t size) {
  const std::int64_t rest = block->second.size - size;
  if (rest < (segments_.at(block->second.segment) == kSmallSegment ? kUnit : kSmall)) return;
  block->second.size = size;
  const auto other = blocks_.emplace(block->first + size, block->second).first;
  other->second.size = rest;
  other->second.state = State::free;
  insert_free(other);
  stats_.cached_bytes += rest;
}

void CachingAllocator::note_use(const void* memory, StreamKey stream) {
  const auto* const at = static_cast<const std::byte*>(memory);
  std::lock_guard lock(mutex_);
  auto block = blocks_.upper_bound(const_cast<std::byte*>(at));
  if (block == blocks_.begin()) return;
  --block;
  if (at >= block->first + block->second.size || block->second.state != State::used) return;
  if (stream != block->second.stream) block->second.users.insert(stream);
}

void CachingAllocator::release(void* memory) noexcept {
  std::lock_guard lock(mutex_);
  const auto block = blocks_.find(static_cast<std::byte*>(memory));
  if (block == blocks_.end() || block->second.state != State::used) return;
  stats_.in_use_bytes -= block->second.size;
  stats_.cached_bytes += block->second.size;
  const int pool = block->second.pool;
  if (pool != 0 && (pool != capturing_ || !block->second.users.empty())) return keep(block);
  if (block->second.users.empty()) return make_free(block);
  block->second.state = State::waiting;
  try {
    if (capturing_ != 0)
      behind_capture_.push_back(block->first);
    else
      wait_for_users(block);
  } catch (...) {
    // The device has failed for good. The block stays out of use; the next call on the device tells why.
  }
}

void CachingAllocator::wait_for_users(Blocks::iterator block) {
  Waiting waiting{block, {}};
  for (const StreamKey user : std::exchange(block->second.users, {}))
    waiting.events.push_back(device_.record(user));
  waiting_.push_back(std::move(waiting));
}

// The recording's own: neither handed out nor joined.
void CachingAllocator::keep(Blocks::iterator block) {
  block->second.state = State::kept;
  block->second.users.clear();
}

void CachingAllocator::begin_capture() {
  std::lock_guard lock(mutex_);
  BRIGADE_CHECK(capturing_ == 0, "capture: another one is under way");
  capturing_ = ++pools_;
}

int CachingAllocator::end_capture() {
  std::lock_guard lock(mutex_);
  const int pool = std::exchange(capturing_, 0);
  for (auto block = blocks_.begin(); block != blocks_.end(); ++block) {
    if (block->second.pool != pool || block->second.state != State::free) continue;
    erase_free(block);
    keep(block);
  }
  for (std::byte* const memory : std::exchange(behind_capture_, {})) wait_for_users(blocks_.find(memory));
  return pool;
}

void CachingAllocator::release_pool(int pool, StreamKey stream) noexcept {
  std::lock_guard lock(mutex_);
  try {
    const Event done = device_.record(stream);
    for (auto block = blocks_.begin(); block != blocks_.end(); ++block) {
      if (block->second.pool != pool) continue;
      block->second.pool = 0;
      if (block->second.state == State::used) block->second.users.insert(stream);
      if (block->second.state != State::kept) continue;
      block->second.state = State::waiting;
      waiting_.push_back({block, {done}});
    }
  } catch (...) {
    // The device has failed for good: see release().
  }
}

void CachingAllocator::make_free(Blocks::iterator block) {
  block->second.state = State::free;
  const auto joins = [&](Blocks::iterator other) {
    return other->second.state == State::free && other->second.segment == block->second.segment &&
           other->second.stream == block->second.stream && other->second.pool == block->second.pool;
  };
  if (const auto after = std::next(block); after != blocks_.end() && joins(after)) {
    erase_free(after);
    block->second.size += after->second.size;
    blocks_.erase(after);
  }
  if (block != blocks_.begin() && joins(std::prev(block))) {
    const auto before = std::prev(block);
    erase_free(before);
    before->second.size += block->second.size;
    blocks_.erase(block);
    block = before;
  }
  insert_free(block);
}

void CachingAllocator::look_at_waiting() {
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    if (!std::all_of(at->events.begin(), at->events.end(), [](const Event& event) { return event.done(); })) {
      ++at;
      continue;
    }
    make_free(at->block);
    at = waiting_.erase(at);
  }
}

void CachingAllocator::wait_for_waiting() {
  for (const Waiting& waiting : waiting_)
    for (const Event& event : waiting.events) event.wait();
  look_at_waiting();
}

void CachingAllocator::trim() noexcept {
  std::lock_guard lock(mutex_);
  try {
    wait_for_waiting();
  } catch (...) {
    return;  // The device has failed for good.
  }
  trim_locked();
}

void CachingAllocator::trim_locked() noexcept {
  for (auto segment = segments_.begin(); segment != segments_.end();) {
    const auto block = blocks_.find(segment->first);
    if (block->second.state != State::free || block->second.size != segment->second) {
      ++segment;
      continue;
    }
    erase_free(block);
    stats_.cached_bytes -= block->second.size;
    blocks_.erase(block);
    device_.release(segment->first);
    segment = segments_.erase(segment);
  }
}

std::string CachingAllocator::out_of_memory(std::int64_t bytes) const {
  return str("allocate: ", device_.name(), " has no ", mebibytes(bytes), " left; in use ",
             mebibytes(stats_.in_use_bytes), ", cached in pieces that do not fit ",
             mebibytes(stats_.cached_bytes), "; take smaller batches, or --accumulate");
}

MemoryStats CachingAllocator::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

void CachingAllocator::reset_peak() {
  std::lock_guard lock(mutex_);
  stats_.peak_bytes = stats_.in_use_bytes;
}

}  // namespace brigade
