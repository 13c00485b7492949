// SPDX-License-Identifier: MIT
// dist/strategies/bucketed.h - communication hidden behind backward, one bucket after another.
// Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel
// Training", VLDB 2020, section 3.2.
#pragma once

#include "dist/grad_sync.h"

namespace brigade::dist {

/// Launches each bucket from inside backward as soon as it, and every bucket before it, is complete. With one
/// bucket a parameter this is "per_parameter".
class BucketedSync final : public GradSync {
 public:
  explicit BucketedSync(BucketReducer& reducer) : reducer_(reducer) {}
  void begin() override;
  void on_grad_ready() override { launch_complete(); }
  void finish() override;

 private:
  void launch_complete();

  BucketReducer& reducer_;
  int next_ = 0;  // The first bucket that has not been launched.
};

}  // namespace brigade::dist
