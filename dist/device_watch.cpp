// SPDX-License-Identifier: MIT
// dist/device_watch.cpp - see the header.
#include "dist/device_watch.h"

#include <pthread.h>

#include <utility>

#include "core/parallel.h"

namespace brigade::dist {
namespace {

// Not for every call: a thread that wakes up takes a core from somebody. A failure is rare, and seen soon enough.
constexpr std::chrono::milliseconds kPeriod{50};

}  // namespace

DeviceWatch::DeviceWatch(std::shared_ptr<GroupState> group)
    : group_(std::move(group)), thread_([this] { run(); }) {}

DeviceWatch::~DeviceWatch() { stop(); }

void DeviceWatch::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void DeviceWatch::add(std::shared_ptr<const Work::State> work) {
  std::lock_guard lock(mutex_);
  if (under_way_.empty()) since_ = Clock::now();
  under_way_.push_back(std::move(work));
}

void DeviceWatch::run() {
  pthread_setname_np(pthread_self(), "device watch");
  mark_helper_thread();
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kPeriod, [this] { return stopping_; })) {
    lock.unlock();
    try {
      look();
    } catch (const std::exception& e) {  // The device itself failed.
      group_->abort(str(group_->who, ": ", e.what()));
    }
    lock.lock();
  }
}

void DeviceWatch::look() {
  if (group_->aborted() || group_->closed()) {
    std::lock_guard lock(mutex_);
    under_way_.clear();
    return;
  }
  std::string what = "between collectives";
  bool late = false;
  {
    std::lock_guard lock(mutex_);
    while (!under_way_.empty() && under_way_.front()->left.done()) {
      under_way_.pop_front();
      since_ = Clock::now();
    }
    if (!under_way_.empty()) {
      what = under_way_.front()->what;
      late = Clock::now() - since_ > group_->timeout;
    }
  }
  // Outside of the lock: an abort may take its time, and add() must not wait.
  if (const auto failure = group_->transport->failure())
    group_->abort(str(group_->who, ": ", what, ": ", *failure));
  else if (late)
    group_->give_up(what + ", on the device");
}

}  // namespace brigade::dist
