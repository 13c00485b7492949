// SPDX-License-Identifier: MIT
// dist/shm/progress_slot.cpp - a sequence lock.
#include "dist/shm/progress_slot.h"

#include <bit>

namespace brigade::dist {
namespace {
using Words = std::array<std::uint64_t, sizeof(Progress) / sizeof(std::uint64_t)>;
static_assert(sizeof(Words) == sizeof(Progress) && std::atomic<std::uint64_t>::is_always_lock_free);
}  // namespace

void ProgressSlot::write(const Progress& progress) noexcept {
  const auto words = std::bit_cast<Words>(progress);
  const std::uint64_t version = version_.load(std::memory_order_relaxed);
  version_.store(version + 1, std::memory_order_relaxed);
  // Release and acquire on every word instead of a fence, which race checkers do not know: who sees a new word sees
  // the odd version before it, too.
  for (std::size_t i = 0; i < words.size(); ++i) words_[i].store(words[i], std::memory_order_release);
  version_.store(version + 2, std::memory_order_release);
}

Progress ProgressSlot::read() const {
  if (version_.load(std::memory_order_acquire) == 0) return {};
  Words words;
  // A writer that died half-way leaves an odd version: after some tries what is there is good enough for a message.
  for (int tries = 0; tries < 100; ++tries) {
    const std::uint64_t before = version_.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = words_[i].load(std::memory_order_acquire);
    if (before % 2 == 0 && version_.load(std::memory_order_relaxed) == before) break;
  }
  auto out = std::bit_cast<Progress>(words);
  out.phase[sizeof out.phase - 1] = out.first_pending[sizeof out.first_pending - 1] = '\0';
  return out;
}

}  // namespace brigade::dist
