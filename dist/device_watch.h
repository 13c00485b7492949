// SPDX-License-Identifier: MIT
// dist/device_watch.h - who waits for a device when nobody does: collectives that were enqueued and do not end. Read
// before: dist/work_state.h. Used by dist/process_group.cpp.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "dist/work_state.h"

namespace brigade::dist {

/// Looks some times a second at the calls that are under way on the group's device, and at what its transport says of
/// links and peers. Ends the group, for all ranks, when a call is not done within the group's time-out (counted from
/// when the one before it was), or when something failed: only then do kernels that wait for a peer end, and a host
/// that waits for them goes on. Thread-safe.
class DeviceWatch {
 public:
  explicit DeviceWatch(std::shared_ptr<GroupState> group);
  ~DeviceWatch();
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

  /// `work` has been enqueued.
  void add(std::shared_ptr<const Work::State> work);
  void stop();  ///< Before the transport goes. Blocks for a look that is under way.

 private:
  void run();
  void look();

  const std::shared_ptr<GroupState> group_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<const Work::State>> under_way_;
  Clock::time_point since_{};  // The first of them is the first.
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace brigade::dist
