// SPDX-License-Identifier: MIT
// core/stream.cpp - events completed by hand and the CPU's stream, a worker thread with a queue.
#include "core/stream.h"

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "core/parallel.h"

namespace brigade {

struct ManualEvent::Impl {
  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  bool done = false;
};

ManualEvent::ManualEvent() : impl_(std::make_unique<Impl>()) {}
ManualEvent::~ManualEvent() = default;

void ManualEvent::complete() {
  std::lock_guard lock(impl_->mutex);
  impl_->done = true;
  // Under the lock: a waiter may destroy this event as soon as it sees `done`.
  impl_->changed.notify_all();
}

bool ManualEvent::done() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->done;
}

bool ManualEvent::wait_until(Clock::time_point deadline) const {
  std::unique_lock lock(impl_->mutex);
  const auto is_done = [this] { return impl_->done; };
  // wait_until(max) overflows inside libstdc++ when it converts clocks.
  if (deadline == Clock::time_point::max()) {
    impl_->changed.wait(lock, is_done);
    return true;
  }
  return impl_->changed.wait_until(lock, deadline, is_done);
}

namespace {

// Where waits help, the thread would be woken for every task, and be too late or get in the way. So behind an offered
// task it naps: another one that is offered meanwhile does not wake it. After a few naps it sleeps until it is called.
constexpr std::chrono::microseconds kNap{200};
constexpr int kNaps = 3;

class WorkerStream final : public Stream {
 public:
  explicit WorkerStream(std::string name) : thread_([this, name = std::move(name)] { run(name); }) {}

  ~WorkerStream() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      queue_.clear();
    }
    changed_.notify_all();
    thread_.join();
  }

  void submit(std::function<void()> task) override { push({.run = std::move(task)}); }
  void offer(std::function<void()> task, std::shared_ptr<ManualEvent> done) override {
    push({.run = std::move(task), .done = std::move(done)});
  }

  void help(const Event& event) override {
    const int threads = num_threads();
    std::unique_lock lock(mutex_);
    if (running_) return;
    while (!queue_.empty() && queue_.front().done && !event.done()) {
      mark_helper_thread();
      run_first(lock);
    }
    const bool more = !queue_.empty();
    lock.unlock();
    set_num_threads(threads);
    if (more) changed_.notify_one();
  }

  Event record() override {
    auto event = std::make_shared<ManualEvent>();
    submit([event] { event->complete(); });
    return Event(event);
  }

  void wait(const Event& event) override {
    if (!event.done()) submit([event] { event.wait(); });
  }

  void synchronize() override {
    record().wait();
    std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

 private:
  struct Task {
    std::function<void()> run;
    std::shared_ptr<ManualEvent> done = {};  // Set: the task was offered.
  };

  void push(Task task) {
    bool wakes = false;
    {
      std::lock_guard lock(mutex_);
      // Whoever runs a task looks at what is queued behind it.
      wakes = !running_ && !(napping_ && task.done);
      queue_.push_back(std::move(task));
    }
    if (wakes) changed_.notify_one();
  }

  // Takes the first task off the queue and runs it, without the lock. On one thread at a time: `running_`.
  void run_first(std::unique_lock<std::mutex>& lock) {
    Task task = std::move(queue_.front());
    queue_.pop_front();
    running_ = true;
    naps_ = task.done ? kNaps : 0;
    lock.unlock();
    std::exception_ptr failure;
    try {
      task.run();
    } catch (...) {
      failure = std::current_exception();
    }
    task.run = nullptr;  // Release what the task captured before the next one is waited for.
    lock.lock();
    running_ = false;
    if (failure && !failure_) failure_ = failure;
    // Last: who waits for it and offers the next task finds that nobody runs one, and may help.
    if (task.done) task.done->complete();
  }

  void run(const std::string& name) {
    pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
    mark_helper_thread();
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      if (!running_ && !queue_.empty()) {
        run_first(lock);
      } else if (naps_ == 0) {
        changed_.wait(lock);
      } else {
        --naps_;
        napping_ = true;
        changed_.wait_for(lock, kNap);
        napping_ = false;
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> queue_;
  std::exception_ptr failure_;  // The first one since the last synchronize().
  bool stopping_ = false;
  bool running_ = false;  // Some thread runs a task.
  int naps_ = 0;          // That the stream's thread takes before it sleeps.
  bool napping_ = false;
  std::thread thread_;  // Last: it uses everything above.
};

class CallerStream final : public Stream {
 public:
  void submit(std::function<void()> task) override { task(); }
  void offer(std::function<void()> task, std::shared_ptr<ManualEvent> done) override {
    task();
    done->complete();
  }
  void help(const Event&) override {}
  Event record() override { return {}; }
  void wait(const Event& event) override { event.wait(); }
  void synchronize() override {}
};

}  // namespace

std::unique_ptr<Stream> make_worker_stream(std::string name) {
  return std::make_unique<WorkerStream>(std::move(name));
}

std::unique_ptr<Stream> make_caller_stream() { return std::make_unique<CallerStream>(); }

}  // namespace brigade
