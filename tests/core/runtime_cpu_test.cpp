// SPDX-License-Identifier: MIT
// tests/core/runtime_cpu_test.cpp - the caching allocator: alignment, reuse, statistics, threads.
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "core/runtime.h"
#include "tests/support/test.h"

using namespace brigade;

namespace {

struct Block {
  std::int64_t bytes;
  void* memory;
};

/// Allocates one block of each size, fills it to its last byte and releases all.
void use(const std::vector<std::int64_t>& sizes) {
  std::vector<Block> blocks;
  for (std::int64_t bytes : sizes) {
    void* memory = runtime({}).allocate(bytes);
    if (bytes > 0) std::memset(memory, 7, static_cast<std::size_t>(bytes));
    blocks.push_back({bytes, memory});
  }
  for (const Block& block : blocks) runtime({}).release(block.memory, block.bytes);
}

}  // namespace

TEST_CASE("aligned rounds up to whole cache lines", "[core][runtime]") {
  REQUIRE(aligned(0) == 0);
  REQUIRE(aligned(1) == 64);
  REQUIRE(aligned(64) == 64);
  REQUIRE(aligned(65) == 128);
}

TEST_CASE("every allocation is aligned and no two overlap", "[core][runtime]") {
  Runtime& cpu = runtime({});
  std::vector<Block> blocks;
  for (std::int64_t bytes : {0L, 1L, 63L, 64L, 65L, 1000L, 4097L, 1L << 20, (2L << 20) + 1, 5L << 20})
    blocks.push_back({bytes, cpu.allocate(bytes)});
  for (const Block& a : blocks) {
    REQUIRE(reinterpret_cast<std::uintptr_t>(a.memory) % kAlignment == 0);
    const auto* begin = static_cast<const char*>(a.memory);
    for (const Block& b : blocks) {
      if (&a == &b) continue;
      const auto* other = static_cast<const char*>(b.memory);
      REQUIRE((begin + a.bytes <= other || other + b.bytes <= begin));
    }
  }
  for (const Block& block : blocks) cpu.release(block.memory, block.bytes);
}

TEST_CASE("a second round of the same sizes asks the system for nothing", "[core][runtime]") {
  const std::vector<std::int64_t> sizes{1, 100, 100, 5000, 5001, 70000, 1 << 20, 3 << 20, (3 << 20) + 17};
  use(sizes);
  const std::int64_t before = runtime({}).memory_stats().system_allocations;
  for (int round = 0; round < 3; ++round) use(sizes);
  REQUIRE(runtime({}).memory_stats().system_allocations == before);
}

TEST_CASE("at most a fifth of a block is unused", "[core][runtime]") {
  Runtime& cpu = runtime({});
  for (std::int64_t bytes = 1000; bytes < 1 << 22; bytes = bytes * 9 / 8 + 1) {
    const std::int64_t before = cpu.memory_stats().in_use_bytes;
    void* memory = cpu.allocate(bytes);
    const std::int64_t taken = cpu.memory_stats().in_use_bytes - before;
    cpu.release(memory, bytes);
    CAPTURE(bytes, taken);
    REQUIRE(taken >= bytes);
    REQUIRE((taken - aligned(bytes)) * 5 <= taken);
  }
}

TEST_CASE("the peak remembers the largest use since its reset", "[core][runtime]") {
  Runtime& cpu = runtime({});
  constexpr std::int64_t kBytes = 1 << 20;
  cpu.reset_peak();
  const MemoryStats start = cpu.memory_stats();
  REQUIRE(start.peak_bytes == start.in_use_bytes);
  use({kBytes, kBytes});
  const MemoryStats after = cpu.memory_stats();
  REQUIRE(after.in_use_bytes == start.in_use_bytes);
  REQUIRE(after.peak_bytes == start.peak_bytes + 2 * kBytes);
  cpu.reset_peak();
  REQUIRE(cpu.memory_stats().peak_bytes == start.in_use_bytes);
}

TEST_CASE("trim empties the cache and leaves what is in use", "[core][runtime]") {
  Runtime& cpu = runtime({});
  void* kept = cpu.allocate(1 << 20);
  std::memset(kept, 3, 1 << 20);
  use({1 << 20, 1 << 16});
  REQUIRE(cpu.memory_stats().cached_bytes >= (1 << 20) + (1 << 16));
  cpu.trim();
  REQUIRE(cpu.memory_stats().cached_bytes == 0);
  REQUIRE(static_cast<const char*>(kept)[(1 << 20) - 1] == 3);
  cpu.release(kept, 1 << 20);
}

TEST_CASE("threads that allocate at once get blocks of their own", "[core][runtime]") {
  const std::int64_t before = runtime({}).memory_stats().in_use_bytes;
  std::vector<int> clashes(4, 0);
  {
    std::vector<std::jthread> threads;
    for (int id = 0; id < 4; ++id)
      threads.emplace_back([id, &clashes] {
        for (int round = 0; round < 2000; ++round) {
          const std::int64_t bytes = 64 + round % 7 * 64;
          auto* memory = static_cast<unsigned char*>(runtime({}).allocate(bytes));
          std::memset(memory, id, static_cast<std::size_t>(bytes));
          std::this_thread::yield();
          for (std::int64_t i = 0; i < bytes; ++i) clashes[static_cast<std::size_t>(id)] += memory[i] != id;
          runtime({}).release(memory, bytes);
        }
      });
  }
  REQUIRE(clashes == std::vector<int>(4, 0));
  REQUIRE(runtime({}).memory_stats().in_use_bytes == before);
}

TEST_CASE("an allocation that no machine can hold is an Error", "[core][runtime][error]") {
  REQUIRE_THROWS_WITH(runtime({}).allocate(std::int64_t{1} << 50),
                      ContainsSubstring("allocate: cannot hold 1125899906842624 bytes"));
  REQUIRE_THROWS_AS(runtime({}).allocate(-1), Error);
}
