// SPDX-License-Identifier: MIT
// dist/shm/channels.h - messages between two ranks of a host, through rings of bytes. Read before: dist/shm/meeting.h.
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "core/tensor.h"
#include "dist/shm/meeting.h"

namespace brigade::dist {

/// One rank's ends of all its rings.
class Channels {
 public:
  explicit Channels(Meeting& meeting) : meeting_(&meeting) {}

  /// Sends, receives, or both at once (nullptr: not), without deadlock in any pattern. Blocks until what was sent lies
  /// in the ring, whose size bounds it, and what is received has come. CommError if that has another dtype or size.
  void exchange(const Tensor* sent, int to, Tensor* received, int from);

  /// "waiting for a message from rank 1" while that is so. Any thread.
  std::optional<std::string> arrivals() const;

 private:
  Meeting* meeting_;
  std::atomic<int> receives_from_ = -1, sends_to_ = -1;
};

}  // namespace brigade::dist
