// SPDX-License-Identifier: MIT
// dist/strategies/bucketed.cpp - the cursor that keeps ranks in step.
// Read before: dist/bucket_reducer.h, dist/strategies/bucketed.h. Read next: dist/ddp.cpp.
#include "dist/strategies/bucketed.h"

namespace brigade::dist {

void BucketedSync::begin() {
  next_ = 0;
  launch_complete();  // Buckets of nothing but unused parameters are complete before backward starts.
}

void BucketedSync::launch_complete() {
  // Launch in plan order, never in completion order: backward may finish bucket 3 before bucket 2 on one rank
  // only, and collectives must match across ranks.
  while (next_ < reducer_.bucket_count() && reducer_.complete(next_)) reducer_.launch(next_++);
}

void BucketedSync::finish() {
  BRIGADE_CHECK(next_ == reducer_.bucket_count(), "bucketed: backward ended, but ", reducer_.label(next_),
                " is not complete");
}

}  // namespace brigade::dist
