// SPDX-License-Identifier: MIT
// dist/work_state.h - what a ProcessGroup, its queued calls and their Works share. Private to dist: the
// public faces are dist/work.h and dist/process_group.h.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "core/runtime.h"
#include "dist/transport.h"
#include "dist/work.h"

namespace brigade::dist {

/// Outlives the ProcessGroup while calls are queued or Works are held.
struct GroupState {
  std::unique_ptr<Transport> transport;   // Set once, on the communication stream, before any call.
  std::weak_ptr<Stream> stream;           // Weak: its queue holds what holds this.
  Device device;                          // Of tensors beside the CPU's; the CPU if there are none.
  std::shared_ptr<Stream> device_stream;  // Where their calls run.
  std::chrono::milliseconds timeout{0};
  std::string who;  // "rank 1/4"

  /// Makes all later calls fail with `reason`; only the first reason is kept.
  void fail(const std::string& reason);
  /// fail(), and ends the transport for all ranks. Any thread.
  void abort(const std::string& reason) noexcept;
  /// The time-out has passed for the call `what`: ends the group. Returns the reason, which says who did not come.
  std::string give_up(const std::string& what);
  /// The first reason, if any.
  std::optional<std::string> failure() const;
  /// When abort() was called first.
  std::optional<Clock::time_point> aborted() const;

  /// After an ordered close there is nobody left to abort.
  void mark_closed();
  bool closed() const;

 private:
  mutable std::mutex mutex_;
  std::optional<std::string> failure_;
  std::optional<Clock::time_point> aborted_;
  bool closed_ = false;
};

struct Work::State {
  std::shared_ptr<GroupState> group;
  std::string what;  // "all_reduce(sum) f32 x 100, sequence 17, bucket 2 (conv1.weight …)"
  std::shared_ptr<ManualEvent> finished = std::make_shared<ManualEvent>();
  // Written by the communication stream before `finished` completes.
  std::optional<std::string> error;
  WorkTimes times;
  bool on_device = false;
  bool captured =
      false;  // The device repeats the call: its events have no time, and order nothing but the capture.
  Event began, left;  // Of the group's device stream, if on_device.
};

}  // namespace brigade::dist
