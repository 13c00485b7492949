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

/// When a collective was queued, began and ended on the communication stream.
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

  bool done() const;
  /// Blocks until the result is in place: runs the call itself, with those before it, if the stream's thread has not
  /// begun and the transport lets any thread call. Throws CommError if the collective failed or the group's time-out
  /// passes (counted from the moment the wait begins).
  void wait() const;
  /// Done when the collective has left the communication stream, failed or not. For streams to wait on.
  Event event() const;
  /// Valid once done().
  WorkTimes times() const;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace brigade::dist
