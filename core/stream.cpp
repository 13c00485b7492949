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

  void submit(std::function<void()> task) override {
    {
      std::lock_guard lock(mutex_);
      queue_.push_back(std::move(task));
    }
    changed_.notify_one();
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
  void run(const std::string& name) {
    pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
    mark_helper_thread();
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
      auto task = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      std::exception_ptr failure;
      try {
        task();
      } catch (...) {
        failure = std::current_exception();
      }
      task = nullptr;  // Release what the task captured before the next one is waited for.
      lock.lock();
      if (failure && !failure_) failure_ = failure;
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  std::exception_ptr failure_;  // The first one since the last synchronize().
  bool stopping_ = false;
  std::thread thread_;  // Last: it uses everything above.
};

}  // namespace

std::unique_ptr<Stream> make_worker_stream(std::string name) {
  return std::make_unique<WorkerStream>(std::move(name));
}

}  // namespace brigade
