// SPDX-License-Identifier: MIT
// dist/shm/host_memory.cpp - the layout, and an allocator that takes the first gap.
#include "dist/shm/host_memory.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "dist/work.h"

namespace brigade::dist {
namespace {

constexpr std::int64_t kPage = 4096, kHugePage = std::int64_t{2} << 20;

constexpr std::int64_t round_up(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; }

// Of each rank: its share of all there is. If all ranks need the same, none can use more.
std::int64_t region_bytes(int ranks) {
  const std::int64_t installed = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return round_up(std::max(installed / ranks, kHugePage), kHugePage);
}

}  // namespace

HostMemory::Layout::Layout(std::int64_t ranks) {
  blocks = round_up(sizeof(AbortNote), 64);
  staging = round_up(blocks + ranks * static_cast<std::int64_t>(sizeof(RankBlock)), kPage);
  rings = staging + ranks * 2 * kStagingBytes;
  regions = round_up(rings + ranks * ranks * static_cast<std::int64_t>(sizeof(ByteRing)), kHugePage);
}

HostMemory::HostMemory(std::byte* base, int ranks, std::int64_t bytes)
    : layout_(ranks),
      base_(base),
      ranks_(ranks),
      bytes_(bytes),
      region_bytes_((bytes - layout_.regions) / ranks),
      used_(static_cast<std::size_t>(ranks)) {}

Descriptor HostMemory::make_shared_memory(int ranks) {
  return make_memory(Layout(ranks).regions + ranks * region_bytes(ranks));
}

std::shared_ptr<HostMemory> HostMemory::make(int ranks) {
  auto memory = map(make_shared_memory(ranks), ranks);
  if (!memory) throw CommError("shared memory: the system has none");
  return memory;
}

std::shared_ptr<HostMemory> HostMemory::map(const Descriptor& memory, int ranks) {
  if (!memory) return nullptr;
  struct stat file {};
  if (fstat(memory.get(), &file) != 0 || file.st_size < Layout(ranks).regions) return nullptr;
  const auto bytes = static_cast<std::size_t>(file.st_size);  // As its maker counted the machine's memory.
  // On a boundary of huge pages, which can be used only where address and offset agree: some more address space is
  // reserved, and the rest given back.
  const auto unit = static_cast<std::size_t>(kHugePage);
  void* const reserved =
      mmap(nullptr, bytes + unit, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(reserved);
  const std::size_t before = (unit - reinterpret_cast<std::uintptr_t>(begin) % unit) % unit;
  void* const mapped = mmap(begin + before, bytes, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_FIXED | MAP_NORESERVE, memory.get(), 0);
  if (before > 0) munmap(begin, before);
  if (unit > before) munmap(begin + before + bytes, unit - before);
  if (mapped == MAP_FAILED) {
    munmap(begin + before, bytes);
    return nullptr;
  }
  return std::shared_ptr<HostMemory>(new HostMemory(static_cast<std::byte*>(mapped), ranks, file.st_size));
}

HostMemory::~HostMemory() { munmap(base_, static_cast<std::size_t>(bytes_)); }

RankBlock& HostMemory::block(int rank) const {
  return reinterpret_cast<RankBlock*>(base_ + layout_.blocks)[rank];
}

AbortNote& HostMemory::abort_note() const { return *reinterpret_cast<AbortNote*>(base_); }

std::byte* HostMemory::staging(int rank, int half) const {
  return base_ + layout_.staging + (std::int64_t{2} * rank + half) * kStagingBytes;
}

ByteRing& HostMemory::ring(int from, int to) const {
  return reinterpret_cast<ByteRing*>(base_ + layout_.rings)[from * ranks_ + to];
}

std::byte* HostMemory::region(int rank) const { return base_ + layout_.regions + rank * region_bytes_; }

std::int64_t HostMemory::offset_of(int rank, const std::byte* memory, std::int64_t bytes) const {
  const std::byte* const begin = region(rank);
  return memory >= begin && memory - begin <= region_bytes_ - bytes ? memory - begin : -1;
}

// The first gap that is large enough; -1 if there is none.
std::int64_t HostMemory::take(int rank, std::int64_t bytes, std::int64_t alignment) {
  std::lock_guard lock(mutex_);
  auto& used = used_[static_cast<std::size_t>(rank)];
  std::int64_t offset = 0;
  auto next = used.begin();
  while (next != used.end() && next->offset < offset + bytes) {
    offset = round_up(next->offset + next->bytes, alignment);
    ++next;
  }
  if (offset + bytes > region_bytes_) return -1;
  used.insert(next, {offset, bytes});
  return offset;
}

void HostMemory::give_back(int rank, std::int64_t offset) noexcept {
  std::lock_guard lock(mutex_);
  auto& used = used_[static_cast<std::size_t>(rank)];
  const auto found =
      std::find_if(used.begin(), used.end(), [&](const Used& block) { return block.offset == offset; });
  madvise(region(rank) + offset, static_cast<std::size_t>(found->bytes), MADV_REMOVE);  // Frees the pages.
  used.erase(found);
}

Storage HostMemory::allocate(int rank, std::int64_t bytes) {
  // Huge pages where they pay: 512 times fewer entries for every rank that maps the memory.
  const std::int64_t unit = bytes >= kHugePage ? kHugePage : kPage;
  const std::int64_t size = round_up(std::max<std::int64_t>(bytes, 1), unit), offset = take(rank, size, unit);
  if (offset < 0) {
    Storage storage(Device{}, bytes);
    runtime(Device{}).fill_zero(storage.data(), bytes);
    return storage;
  }
  std::byte* const begin = region(rank) + offset;
  if (unit == kHugePage)
    madvise(begin, static_cast<std::size_t>(size), MADV_HUGEPAGE);  // A hint: refusal is harmless.
  runtime(Device{}).fill_zero(begin, bytes);
  return Storage(Device{}, bytes,
                 std::shared_ptr<std::byte>(begin, [self = shared_from_this(), rank, offset](std::byte*) {
                   self->give_back(rank, offset);
                 }));
}

void HostMemory::map_pages(int rank, std::int64_t offset, std::int64_t bytes) const noexcept {
  const std::int64_t begin = offset / kPage * kPage;
  std::byte* const first = region(rank) + begin;
  const auto length = static_cast<std::size_t>(offset + bytes - begin);
  if (bytes >= kHugePage) madvise(first, length, MADV_HUGEPAGE);
#ifdef MADV_POPULATE_WRITE  // Linux 5.14; where it is missing the first step is a little slower.
  if (bytes > 0) madvise(first, length, MADV_POPULATE_WRITE);
#endif
}

}  // namespace brigade::dist
