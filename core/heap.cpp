// SPDX-License-Identifier: MIT
// core/heap.cpp - see the header.
#include "core/heap.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>

namespace brigade {
namespace {

constexpr std::int64_t kHugePage = std::int64_t{2} << 20;
// Long, so that neighbours can join; addresses cost nothing until they are touched.
constexpr std::int64_t kStretch = std::int64_t{1} << 30;

}  // namespace

Heap::~Heap() {
  for (const Stretch& s : stretches_) munmap(s.mapping, s.mapped);
}

void* Heap::allocate(std::int64_t bytes) {
  // For this block, for its rest, and for what grow() adds before that is taken out again. From here on nothing throws
  // but grow(), which then has changed nothing.
  reserve_nodes(out_ + 3);
  auto smallest = by_size_.lower_bound({bytes, nullptr});
  if (smallest == by_size_.end()) {
    if (!grow(bytes)) return nullptr;
    smallest = by_size_.lower_bound({bytes, nullptr});
  }
  std::byte* const memory = smallest->second;
  const Free block = remove(free_.find(memory));
  const std::int64_t cached = std::min(block.cached, bytes);
  if (cached < bytes) ++fresh_;
  if (block.size > bytes) add(memory + bytes, {block.size - bytes, block.cached - cached});
  ++out_;
  return memory;
}

void Heap::release(void* memory, std::int64_t bytes) noexcept {
  --out_;
  add(static_cast<std::byte*>(memory), {bytes, bytes});
}

void Heap::reserve_nodes(std::size_t count) {
  // remove() puts nodes back, those of all free blocks at most.
  const std::size_t most = std::max(count, nodes_.size()) + free_.size();
  if (nodes_.capacity() < most) nodes_.reserve(2 * most);
  while (nodes_.size() < count) {
    FreeBlocks free{{nullptr, {}}};
    BySize size{{0, nullptr}};
    nodes_.push_back({free.extract(free.begin()), size.extract(size.begin())});
  }
}

void Heap::trim() {
  for (auto& [memory, block] : free_) {
    madvise(memory, static_cast<std::size_t>(block.size), MADV_DONTNEED);
    block.cached = 0;
  }
  cached_ = 0;
  std::erase_if(stretches_, [&](const Stretch& s) {
    const auto first = free_.find(s.begin);
    if (first == free_.end() || first->second.size != s.used) return false;
    remove(first);
    munmap(s.mapping, s.mapped);
    return true;
  });
}

// Makes a free block of at least `bytes` where no stretch has one: at the end of what is used, from the last block on
// if that is free.
bool Heap::grow(std::int64_t bytes) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (Stretch& s : stretches_) {
      std::byte* const end = s.begin + s.used;
      const auto next = free_.lower_bound(end);
      std::int64_t missing = bytes;
      if (next != free_.begin()) {
        const auto& [memory, last] = *std::prev(next);
        if (memory + last.size == end) missing -= last.size;
      }
      if (missing > s.size - s.used) continue;
      s.used += missing;
      add(end, {missing, 0});
      return true;
    }
    if (attempt == 0 && !map_stretch(std::max(bytes, kStretch)) && !map_stretch(bytes)) return false;
  }
  return false;
}

bool Heap::map_stretch(std::int64_t size) {
  stretches_.reserve(stretches_.size() + 1);
  size = (size + kHugePage - 1) / kHugePage * kHugePage;
  // More than a huge page may need to begin at one; what is left on both sides also keeps stretches apart.
  const auto mapped = static_cast<std::size_t>(size + kHugePage);
  void* const mapping = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return false;
  const auto address = reinterpret_cast<std::uintptr_t>(mapping);
  const auto page = static_cast<std::uintptr_t>(kHugePage);
  std::byte* const begin = static_cast<std::byte*>(mapping) + (page - address % page) % page;
  // 512 times fewer first touches. A hint: refusal is harmless.
  static_cast<void>(madvise(begin, static_cast<std::size_t>(size), MADV_HUGEPAGE));
  stretches_.push_back({begin, size, 0, mapping, mapped});
  return true;
}

// Joins the block with free neighbours.
void Heap::add(std::byte* memory, Free block) noexcept {
  cached_ += block.cached;
  const auto join = [&](FreeBlocks::iterator at) {
    const Free other = remove(at);
    block.size += other.size;
    block.cached += other.cached;
    cached_ += other.cached;
  };
  const auto next = free_.find(memory + block.size);
  if (next != free_.end()) join(next);
  const auto after = free_.lower_bound(memory);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second.size == memory) {
      memory = before->first;
      join(before);
    }
  }
  Nodes nodes = std::move(nodes_.back());
  nodes_.pop_back();
  nodes.in_free.key() = memory;
  nodes.in_free.mapped() = block;
  nodes.in_size.value() = {block.size, memory};
  free_.insert(std::move(nodes.in_free));
  by_size_.insert(std::move(nodes.in_size));
}

Heap::Free Heap::remove(FreeBlocks::iterator at) noexcept {
  const auto [memory, block] = *at;
  cached_ -= block.cached;
  nodes_.push_back({free_.extract(at), by_size_.extract({block.size, memory})});
  return block;
}

}  // namespace brigade
