// SPDX-License-Identifier: MIT
// dist/tcp/callers.h - an open port is called by strangers: all who call are heard at once, so that one who says
// nothing, or less than a rank would, keeps nobody waiting. User: dist/tcp/meeting_point.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dist/tcp/sockets.h"

namespace brigade::dist {

struct Caller {
  Descriptor socket;
  std::string said;
};

/// Those who have called at a listener and have not said yet who they are.
class Callers {
 public:
  /// A rank begins with `bytes` bytes, the first eight of which are `word`. `listener` must outlive this.
  Callers(const Descriptor& listener, std::uint64_t word, std::size_t bytes);

  /// The next one that has said all of it; none by `deadline`. Who says another word is dismissed as soon as it has.
  std::optional<Caller> next(Clock::time_point deadline);
  /// What a caller said was no word of ours after all.
  void dismiss() { ++dismissed_; }
  /// "; 2 callers did not speak like ranks of this job", those among them that have not said enough yet; or nothing.
  std::string strangers() const;

 private:
  bool hear(Caller& caller) const;
  void admit();

  const Descriptor& listener_;
  const std::string word_;
  const std::size_t bytes_;
  std::vector<Caller> waiting_;  // In the order they came.
  std::size_t dismissed_ = 0;
};

}  // namespace brigade::dist
