// SPDX-License-Identifier: MIT
// kernels/late_checks.cpp - see the header.
#include "kernels/late_checks.h"

#include <utility>

#include "core/graph.h"

namespace brigade {
namespace {

constinit thread_local LateChecks* current = nullptr;

}  // namespace

LateChecks::LateChecks(Device device) : device_(device) {
  BRIGADE_CHECK(current == nullptr, "late checks: this thread has some already");
  if (device_ != Device{}) current = this;
}

LateChecks::~LateChecks() {
  if (current == this) current = nullptr;
}

LateChecks* LateChecks::of(Device device) {
  return current != nullptr && current->device_ == device ? current : nullptr;
}

// Of a capture nothing has been found yet: whoever repeats it takes the checks and fetches what they find.
void LateChecks::fetch() {
  if (is_capturing(device_)) return;
  for (Check& check : take()) {
    Fetched found(check.found);
    fetched_.push_back({std::move(check), std::move(found)});
  }
}

void LateChecks::judge() {
  if (is_capturing(device_)) return;
  for (const Pending& pending : std::exchange(fetched_, {})) {
    const auto found = pending.found.values<std::int64_t>();
    if (found[0] >= 0) fail(pending.check.text(found[0], found[1]));
  }
}

}  // namespace brigade
