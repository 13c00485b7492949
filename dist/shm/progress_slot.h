// SPDX-License-Identifier: MIT
// dist/shm/progress_slot.h - a Progress in shared memory, written by its rank while others read it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "dist/transport.h"

namespace brigade::dist {

/// Zero bytes are an empty slot. One writer at a time; neither side ever waits.
class ProgressSlot {
 public:
  void write(const Progress& progress) noexcept;
  Progress read() const;

 private:
  static constexpr std::size_t kWords = sizeof(Progress) / sizeof(std::uint64_t);
  std::atomic<std::uint64_t> version_;  // Odd while the words are being written.
  std::array<std::atomic<std::uint64_t>, kWords> words_;
};

}  // namespace brigade::dist
