// SPDX-License-Identifier: MIT
// dist/label_bit.h - a bit of the graph label (autograd/variable.h) for each Ddp. Read next: dist/ddp.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "core/check.h"

namespace brigade::dist {

/// A bit of the graph label, so that no_sync of one model leaves another alone. Labels belong to the graphs of a
/// thread: each thread deals out its own bits, and gets them back when a Ddp ends, on whatever thread.
class LabelBit {
 public:
  LabelBit() : used_(bits_of_this_thread()) {
    std::uint64_t before = *used_;
    do {
      BRIGADE_CHECK(~before != 0, "ddp: at most 64 models can be wrapped at a time on one thread");
      bit_ = ~before & (before + 1);  // The lowest that is free.
    } while (!used_->compare_exchange_weak(before, before | bit_));
  }
  ~LabelBit() { *used_ &= ~bit_; }
  LabelBit(const LabelBit&) = delete;
  LabelBit& operator=(const LabelBit&) = delete;
  std::uint64_t bit() const { return bit_; }

 private:
  using Bits = std::shared_ptr<std::atomic<std::uint64_t>>;
  static const Bits& bits_of_this_thread() {
    thread_local const Bits bits = std::make_shared<std::atomic<std::uint64_t>>(0);
    return bits;
  }
  Bits used_;
  std::uint64_t bit_ = 0;
};

}  // namespace brigade::dist
