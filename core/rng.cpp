// SPDX-License-Identifier: MIT
// core/rng.cpp - the thread's generator.
#include "core/rng.h"

namespace brigade {

Generator& default_generator() {
  thread_local Generator generator;
  return generator;
}

}  // namespace brigade
