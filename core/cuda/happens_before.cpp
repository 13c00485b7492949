// SPDX-License-Identifier: MIT
// core/cuda/happens_before.cpp - vector clocks of streams.
#include "core/cuda/happens_before.h"

#include <algorithm>

#include "core/check.h"

namespace brigade {

void HappensBefore::join(Clock& clock, const Clock& other) {
  for (const auto& [stream, tick] : other) clock[stream] = std::max(clock[stream], tick);
}

std::string HappensBefore::access(Stream stream, const void* memory, std::int64_t bytes, Access access) {
  Clock& clock = clocks_[stream];
  join(clock, host_);
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const Past now{begin, begin + static_cast<std::uintptr_t>(bytes), stream, ++clock[stream], access};
  std::string wrong;
  const auto ordered = [&](const Past& before) {
    const auto seen = clock.find(before.stream);
    return seen != clock.end() && seen->second >= before.tick;
  };
  const auto is_superseded = [&](const Past& before) {
    if (before.begin >= now.end || now.begin >= before.end) return false;
    if (!ordered(before)) {
      if (wrong.empty() && (access == Access::write || before.access == Access::write))
        wrong = str("stream ", stream, access == Access::write ? " writes" : " reads", " what stream ",
                    before.stream, before.access == Access::write ? " writes" : " reads",
                    ", and nothing orders them");
      return false;
    }
    // Whoever comes behind a write comes behind all that the write came behind.
    return access == Access::write && before.begin >= now.begin && before.end <= now.end;
  };
  past_.erase(std::remove_if(past_.begin(), past_.end(), is_superseded), past_.end());
  past_.push_back(now);
  return wrong;
}

std::size_t HappensBefore::record(Stream stream) {
  Clock& clock = clocks_[stream];
  join(clock, host_);
  events_.push_back(clock);
  return events_.size() - 1;
}

void HappensBefore::wait(Stream stream, std::size_t event) { join(clocks_[stream], events_.at(event)); }

void HappensBefore::host_saw(std::size_t event) { join(host_, events_.at(event)); }

}  // namespace brigade
