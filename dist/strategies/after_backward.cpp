// SPDX-License-Identifier: MIT
// dist/strategies/after_backward.cpp - after backward, launches each bucket and waits for it before the next:
// nothing overlaps. Read next: dist/strategies/bucketed.cpp, which launches during backward.
#include "dist/strategies/after_backward.h"

namespace brigade::dist {

void AfterBackwardSync::finish() {
  for (int bucket = 0; bucket < reducer_.bucket_count(); ++bucket) {
    reducer_.launch(bucket);
    reducer_.wait(bucket);
  }
}

}  // namespace brigade::dist
