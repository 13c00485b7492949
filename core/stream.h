// SPDX-License-Identifier: MIT
// core/stream.h - Stream (an ordered queue of work) and Event (a point in one), the same two words on every
// device. On CUDA a Stream is a CUDA stream; on the CPU it is a worker thread with a queue, or, for the compute side
// of a rank, the calling thread itself: kernels run where they are called (make_caller_stream). Read before:
// core/runtime.h makes streams. Read next: dist/process_group.h, the main user.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace brigade {

/// The clock of every time stamp in the ledger.
using Clock = std::chrono::steady_clock;

/// What stands behind an Event on one device.
class EventState {
 public:
  virtual ~EventState() = default;
  virtual bool done() const = 0;
  /// Blocks the calling thread until done or `deadline`; returns done().
  virtual bool wait_until(Clock::time_point deadline) const = 0;
  /// When the device reached it, on the host's clock; nothing before done() and where nobody took the time.
  virtual std::optional<Clock::time_point> time() const { return std::nullopt; }
};

/// A point in a stream: done once everything submitted before it has finished. A cheap shared handle.
class Event {
 public:
  Event() = default;  ///< Already done.
  explicit Event(std::shared_ptr<const EventState> state) : state_(std::move(state)) {}

  bool done() const { return !state_ || state_->done(); }
  void wait() const { static_cast<void>(wait_until(Clock::time_point::max())); }
  bool wait_until(Clock::time_point deadline) const { return !state_ || state_->wait_until(deadline); }
  std::optional<Clock::time_point> time() const { return state_ ? state_->time() : std::nullopt; }
  /// For the stream that made it; nullptr if it is done anyway.
  const EventState* state() const { return state_.get(); }

 private:
  std::shared_ptr<const EventState> state_;
};

/// An Event that somebody else completes by hand: the CPU's building block for streams and for Work.
class ManualEvent final : public EventState {
 public:
  ManualEvent();
  ~ManualEvent() override;
  void complete();  ///< Thread-safe; further calls do nothing.
  bool done() const override;
  bool wait_until(Clock::time_point deadline) const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// An ordered queue of work: tasks run one after another, in the order of submission.
class Stream {
 public:
  virtual ~Stream() = default;

  /// Queues `task` and returns at once. On the CPU it runs on the stream's thread; on CUDA it is called now
  /// and what it enqueues is what is ordered. A task that throws does not stop the ones behind it;
  /// synchronize() rethrows the first failure since the last call.
  virtual void submit(std::function<void()> task) = 0;

  /// submit() for a task that may as well run on a thread that waits for it. `done` is completed behind it, whatever it
  /// throws. Right behind another such task the stream's own thread may begin 0.2 ms late: probably somebody helps.
  virtual void offer(std::function<void()> task, std::shared_ptr<ManualEvent> done) = 0;

  /// For a thread that has nothing to do before `event` of this stream is done: runs what waits in the queue here, in
  /// order, one task at a time as ever, and as a helper thread does (core/parallel.h). Two threads need not be woken
  /// then. Returns when the event is done, or when there is nothing to help with: the stream's own thread is at it, or
  /// must run the next task because it was not offered.
  virtual void help(const Event& event) = 0;

  /// An event that is done when all work submitted so far has finished.
  [[nodiscard]] virtual Event record() = 0;

  /// Work submitted from now on starts only after `event`. Does not block the caller.
  virtual void wait(const Event& event) = 0;

  /// Blocks the caller until everything submitted has finished; rethrows what a task threw.
  virtual void synchronize() = 0;
};

/// A CPU stream: one named worker thread that never enters the OpenMP pool (core/parallel.h).
/// The destructor drops tasks that have not started and joins the thread after the running one.
std::unique_ptr<Stream> make_worker_stream(std::string name);

/// The calling thread taken for a stream: a task runs inside submit(), which throws what it throws; record() is done
/// already, and wait() blocks. What current_stream() is on the CPU (core/runtime.h).
std::unique_ptr<Stream> make_caller_stream();

}  // namespace brigade
