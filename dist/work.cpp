// SPDX-License-Identifier: MIT
// dist/work.cpp - waiting for a collective, with the group's time-out.
#include "dist/work.h"

#include <algorithm>

#include "dist/work_state.h"

namespace brigade::dist {
namespace {

// After an abort the communication stream ends its calls at once, unless its backend cannot be
// interrupted (MPI). A waiter looks every kPoll whether the group was aborted, and leaves an
// unfinished Work behind after kGrace.
constexpr std::chrono::milliseconds kPoll{50};
constexpr std::chrono::milliseconds kGrace{500};

}  // namespace

void GroupState::fail(const std::string& reason) {
  std::lock_guard lock(mutex_);
  if (!failure_) failure_ = reason;
}

void GroupState::abort(const std::string& reason) noexcept {
  {
    std::lock_guard lock(mutex_);
    if (closed_ || aborted_) return;
    if (!failure_) failure_ = reason;
    aborted_ = Clock::now();
  }
  if (transport) transport->abort(reason);
}

std::string GroupState::give_up(const std::string& what) {
  // Asked before the abort, which changes the answer.
  const std::string arrivals = transport->arrivals();
  const std::string reason = str(who, ": ", what, ": not done within ", timeout.count(), " ms; ", arrivals);
  abort(reason);
  return reason;
}

std::optional<std::string> GroupState::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

std::optional<Clock::time_point> GroupState::aborted() const {
  std::lock_guard lock(mutex_);
  return aborted_;
}

void GroupState::mark_closed() {
  std::lock_guard lock(mutex_);
  closed_ = true;
}

bool GroupState::closed() const {
  std::lock_guard lock(mutex_);
  return closed_;
}

bool Work::done() const { return !state_ || state_->finished->done(); }

Event Work::event() const { return state_ ? Event(state_->finished) : Event(); }

WorkTimes Work::times() const {
  if (!state_) return {};
  WorkTimes times = state_->times;
  if (!state_->on_device || state_->captured) return times;
  // The device's clock is tied to ours up to a fraction of a round trip: it may seem to begin before it was told to.
  times.start = std::max(state_->began.time().value_or(times.start), times.launch);
  times.end = std::max(state_->left.time().value_or(times.end), times.start);
  return times;
}

Event Work::began() const { return state_ && !state_->captured ? state_->began : Event(); }
Event Work::left() const { return state_ && !state_->captured ? state_->left : Event(); }

void Work::wait_until_left() const {
  if (!state_) return;
  state_->finished->wait_until(Clock::time_point::max());
  if (state_->on_device && !state_->captured)
    runtime(state_->group->device).current_stream().wait(state_->left);
}

void Work::wait() const {
  if (!state_) return;
  GroupState& group = *state_->group;
  const auto deadline = Clock::now() + group.timeout;
  // A call that has not begun runs here, with those before it: cheaper than to wake the stream's thread and to be woken
  // by it.
  if (const auto stream = state_->finished->done() ? nullptr : group.stream.lock()) {
    const WaitLimit limit(deadline);
    stream->help(event());
  }
  while (!state_->finished->wait_until(std::min(deadline, Clock::now() + kPoll))) {
    const auto aborted = group.aborted();
    if (aborted && Clock::now() - *aborted > kGrace)
      throw CommError(str(group.who, ": ", state_->what, ": the group was ended: ", *group.failure()));
    if (!aborted && Clock::now() >= deadline) throw CommError(group.give_up(state_->what));
  }
  if (state_->error) throw CommError(*state_->error);
  if (!state_->on_device) return;
  // On a device a call can fail after it was enqueued.
  if (const auto failure = group.failure())
    throw CommError(str(group.who, ": ", state_->what, ": an earlier failure: ", *failure));
  runtime(group.device).current_stream().wait(state_->left);
}

}  // namespace brigade::dist
