// SPDX-License-Identifier: MIT
// core/profiler.h - named stretches of time for a profiler that is attached to the process: NVTX ranges, which Nsight
// Systems shows above the kernels that were launched inside. Their names are the ledger's: core/timeline.cpp begins one
// with every span, dist/ledger.h one for each step, dist/bucket_reducer.cpp one for each bucket.
#pragma once

#include <string>

namespace brigade {

/// Hears ranges. Those of one thread nest: end() is that of the last begin() without one. Neither may throw.
class RangeSink {
 public:
  virtual ~RangeSink() = default;
  virtual void begin(const std::string& name) = 0;
  virtual void end() = 0;
};

/// Nobody listens: nullptr. The same answer for the life of the process.
RangeSink* profiler();

/// Marks the rest of the enclosing block. `name()` returns a string; called only if somebody listens.
class ProfilerRange {
 public:
  template <class Name>
  explicit ProfilerRange(const Name& name) : sink_(profiler()) {
    if (sink_ != nullptr) [[unlikely]]
      sink_->begin(name());
  }
  ~ProfilerRange() {
    if (sink_ != nullptr) [[unlikely]]
      sink_->end();
  }
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;

 private:
  RangeSink* sink_;
};

}  // namespace brigade
