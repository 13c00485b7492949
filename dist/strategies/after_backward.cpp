// SPDX-License-Identifier: MIT
// dist/strategies/after_backward.cpp - see the header.
#include "dist/strategies/after_backward.h"

namespace brigade::dist {

void AfterBackwardSync::finish() {
  for (int bucket = 0; bucket < reducer_.bucket_count(); ++bucket) {
    reducer_.launch(bucket);
    reducer_.wait(bucket);
  }
}

}  // namespace brigade::dist
