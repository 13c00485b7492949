// SPDX-License-Identifier: MIT
// dist/work.h - the handle of a collective that is under way.
#pragma once

#include <memory>
#include <string>

#include "core/check.h"
#include "core/stream.h"

namespace brigade::dist {

/// A peer is lost, disagrees, or the time-out passed: nothing this rank did wrong by itself.
/// The message names rank/size, collective, sequence number and label (bucket), and which
/// ranks arrived where that is known.
class CommError : public Error {
 public:
  using Error::Error;
};

/// When a collective was queued, began and ended on the communication stream; on a device when that got there.
struct WorkTimes {
  Clock::time_point launch;  ///< Queued.
  Clock::time_point start;   ///< Begun. With GroupOptions::check_calls: all ranks have arrived.
  Clock::time_point end;
};

/// A collective under way; a cheap shared handle. A default-constructed one is complete.
class Work {
 public:
  struct State;
  Work() = default;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

  /// It has left the communication stream. On a device: it is enqueued there.
  bool done() const;
  /// The result is in place for what the calling thread does next. On the CPU: blocks until it is there. On a device:
  /// blocks until it is enqueued, and makes the thread's current stream wait for it; the host does not wait.
  /// Runs the call itself, with those before it, if the stream's thread has not begun and the transport lets any thread
  /// call. Throws CommError if the collective failed or the group's time-out passes (counted from the moment the wait
  /// begins); what fails on a device later fails the next call and the next wait.
  void wait() const;
  /// wait() without a look at its success, for whoever needs its memory back. Does not help, does not throw.
  void wait_until_left() const;
  /// Done when done(). For streams of the host to wait on.
  Event event() const;
  /// Valid once done(); on a device once began() and left() are.
  WorkTimes times() const;
  /// On a device: its beginning and its end in the device's stream, once done(). On the CPU events that are done.
  Event began() const;
  Event left() const;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace brigade::dist
