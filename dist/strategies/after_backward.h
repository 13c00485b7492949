// SPDX-License-Identifier: MIT
// dist/strategies/after_backward.h - the simplest correct thing: compute all gradients, then communicate.
#pragma once

#include "dist/grad_sync.h"

namespace brigade::dist {

/// Launches nothing during backward; afterwards one bucket at a time, each waited for before the
/// next. With one bucket a parameter this is "naive" DDP, with a single bucket "flat": what every
/// faster strategy is measured against.
class AfterBackwardSync final : public GradSync {
 public:
  explicit AfterBackwardSync(BucketReducer& reducer) : reducer_(reducer) {}
  void finish() override;

 private:
  BucketReducer& reducer_;
};

}  // namespace brigade::dist
