// SPDX-License-Identifier: MIT
// tests/core/heap_test.cpp - the heap of large blocks: joining, choosing, giving back, and that a random history never
// hands out a byte twice.
#include "core/heap.h"

#include <cstdint>
#include <cstring>
#include <vector>

#include "core/rng.h"
#include "tests/support/test.h"

using namespace brigade;

namespace {

constexpr std::int64_t kPage = Heap::kPage;

std::byte* take(Heap& heap, std::int64_t pages) {
  return static_cast<std::byte*>(heap.allocate(pages * kPage));
}

}  // namespace

TEST_CASE("neighbours that are free become one block, in whatever order they were freed", "[core][heap]") {
  for (const auto& order : std::vector<std::vector<int>>{{0, 1, 2}, {2, 1, 0}, {0, 2, 1}, {1, 2, 0}}) {
    Heap heap;
    std::byte* const parts[] = {take(heap, 100), take(heap, 50), take(heap, 70)};
    std::byte* const last = take(heap, 1);
    for (const int i : order) heap.release(parts[i], (i == 0 ? 100 : i == 1 ? 50 : 70) * kPage);
    CHECK(heap.cached_bytes() == 220 * kPage);
    const std::int64_t fresh = heap.fresh_blocks();
    CHECK(take(heap, 220) == parts[0]);
    CHECK(heap.fresh_blocks() == fresh);
    CHECK(heap.cached_bytes() == 0);
    CHECK(take(heap, 1) > last);
  }
}

TEST_CASE("the smallest free block that is large enough is taken, and its rest stays free", "[core][heap]") {
  Heap heap;
  std::byte* const large = take(heap, 300);
  take(heap, 1);
  std::byte* const middle = take(heap, 40);
  take(heap, 1);
  std::byte* const small = take(heap, 20);
  take(heap, 1);
  heap.release(large, 300 * kPage);
  heap.release(middle, 40 * kPage);
  heap.release(small, 20 * kPage);
  CHECK(take(heap, 30) == middle);
  CHECK(take(heap, 20) == small);
  CHECK(take(heap, 10) == middle + 30 * kPage);
  CHECK(take(heap, 10) == large);
}

TEST_CASE("a heap grows from a free block at its end by no more than what is missing", "[core][heap]") {
  Heap heap;
  std::byte* const first = take(heap, 10);
  std::byte* const second = take(heap, 5);
  heap.release(second, 5 * kPage);
  CHECK(take(heap, 8) == second);
  CHECK(heap.fresh_blocks() == 3);
  CHECK(take(heap, 1) == second + 8 * kPage);
  heap.release(first, 10 * kPage);
}

TEST_CASE("blocks larger than a stretch of addresses are as good as others", "[core][heap]") {
  Heap heap;
  const std::int64_t bytes = (std::int64_t{3} << 29) + kPage;
  auto* const memory = static_cast<char*>(heap.allocate(bytes));
  REQUIRE(memory != nullptr);
  memory[0] = 1, memory[bytes - 1] = 2;
  heap.release(memory, bytes);
  CHECK(heap.allocate(bytes) == memory);
  CHECK(heap.allocate(std::int64_t{1} << 47) == nullptr);
}

TEST_CASE("trim gives free memory back, keeps what is in use, and what was given back counts as fresh",
          "[core][heap]") {
  Heap heap;
  std::byte* const before = take(heap, 600);
  std::byte* const kept = take(heap, 600);
  std::memset(before, 1, 600 * kPage);
  std::memset(kept, 2, 600 * kPage);
  heap.release(before, 600 * kPage);
  CHECK(heap.cached_bytes() == 600 * kPage);
  heap.trim();
  CHECK(heap.cached_bytes() == 0);
  CHECK(kept[600 * kPage - 1] == std::byte{2});
  const std::int64_t fresh = heap.fresh_blocks();
  CHECK(take(heap, 600) == before);
  CHECK(heap.fresh_blocks() == fresh + 1);
  // Pages that went back to the system are zero when they come again.
  CHECK(before[600 * kPage - 1] == std::byte{0});
  heap.release(before, 600 * kPage);
  heap.release(kept, 600 * kPage);
  heap.trim();
  CHECK(take(heap, 1) != nullptr);
}

TEST_CASE("a random history of blocks never hands out a byte twice and ends as one free block",
          "[core][heap]") {
  struct Block {
    std::byte* memory;
    std::int64_t pages;
    unsigned char mark;
  };
  Heap heap;
  std::vector<Block> out;
  std::int64_t most = 0, in_use = 0;
  const auto check_and_release = [&](std::size_t i) {
    const Block block = out[i];
    for (std::int64_t p = 0; p < block.pages; ++p)
      REQUIRE(std::to_integer<int>(block.memory[p * kPage + 7]) == block.mark);
    heap.release(block.memory, block.pages * kPage);
    in_use -= block.pages;
    out.erase(out.begin() + static_cast<std::ptrdiff_t>(i));
  };
  for (std::uint64_t i = 0; i < 4000; ++i) {
    const auto random = philox(1, 2, i);
    if (!out.empty() && random[0] % 2 == 0) {
      check_and_release(random[1] % out.size());
      continue;
    }
    const Block block{take(heap, 1 + random[1] % 64), 1 + random[1] % 64, static_cast<unsigned char>(i)};
    for (std::int64_t p = 0; p < block.pages; ++p) block.memory[p * kPage + 7] = std::byte{block.mark};
    out.push_back(block);
    most = std::max(most, in_use += block.pages);
  }
  while (!out.empty()) check_and_release(out.size() - 1);
  // Holes cost something, but not as much again.
  CHECK(heap.cached_bytes() <= 2 * most * kPage);
  const std::int64_t all = heap.cached_bytes(), fresh = heap.fresh_blocks();
  CHECK(heap.allocate(all) != nullptr);
  CHECK(heap.fresh_blocks() == fresh);
}
