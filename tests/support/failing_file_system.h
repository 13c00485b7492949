// SPDX-License-Identifier: MIT
// tests/support/failing_file_system.h - a file system whose n-th call fails, as a full disk or a broken one would.
#pragma once

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <set>
#include <string>

#include "core/file_system.h"

namespace brigade::test {

struct FailurePlan {
  int fail_at = 0;  ///< Which call fails, from 1; 0: none.
  std::string call =
      "";  ///< Count only these ("write", "sync", "rename", "open", "make directory"); "": all.
  int code = ENOSPC;
  std::int64_t most_bytes = 0;  ///< That a write takes; 0: all.
  std::int64_t capacity = -1;   ///< Bytes after which writes fail, as on a full disk; -1: no limit.
};

/// Removing never fails: it is what cleans up. Calls may come from several threads.
class FailingFileSystem final : public FileSystem {
 public:
  explicit FailingFileSystem(FailurePlan plan) : plan_(std::move(plan)) {}

  bool failed() const { return failed_; }
  std::string failed_call() const { return failed_call_; }  ///< "write", "sync directory", …
  int calls() const { return count_; }

  int open(const char* path, int flags, unsigned mode) override {
    const bool directory = (flags & O_DIRECTORY) != 0;
    if (fails("open", directory)) return -1;
    const int file = FileSystem::open(path, flags, mode);
    const std::lock_guard lock(mutex_);
    if (directory && file >= 0) directories_.insert(file);
    return file;
  }
  std::int64_t write(int file, const void* data, std::size_t bytes) override {
    if (fails("write", false)) return -1;
    const std::int64_t wanted =
        plan_.most_bytes > 0 ? std::min<std::int64_t>(plan_.most_bytes, static_cast<std::int64_t>(bytes))
                             : static_cast<std::int64_t>(bytes);
    const std::int64_t room = plan_.capacity < 0 ? wanted : std::min(wanted, plan_.capacity - written_);
    if (room == 0 && wanted > 0) {
      failed_ = true;
      errno = plan_.code;
      return -1;
    }
    written_ += room;
    return FileSystem::write(file, data, static_cast<std::size_t>(room));
  }
  int sync(int file) override { return fails("sync", is_directory(file)) ? -1 : FileSystem::sync(file); }
  int close(int file) override {
    const bool directory = is_directory(file);
    {
      const std::lock_guard lock(mutex_);
      directories_.erase(file);
    }
    // As the system does it: closed all the same.
    const int result = FileSystem::close(file);
    return fails("close", directory) ? -1 : result;
  }
  int rename(const char* from, const char* to) override {
    return fails("rename", false) ? -1 : FileSystem::rename(from, to);
  }
  int make_directory(const char* path) override {
    return fails("make directory", false) ? -1 : FileSystem::make_directory(path);
  }

 private:
  bool is_directory(int file) {
    const std::lock_guard lock(mutex_);
    return directories_.contains(file);
  }
  bool fails(const std::string& call, bool directory) {
    const std::lock_guard lock(mutex_);
    if (!plan_.call.empty() && plan_.call != call) return false;
    if (++count_ != plan_.fail_at) return false;
    failed_ = true;
    failed_call_ = directory ? call + " directory" : call;
    errno = plan_.code;
    return true;
  }

  FailurePlan plan_;
  std::mutex mutex_;
  std::set<int> directories_;  // Open ones.
  int count_ = 0;
  std::atomic<std::int64_t> written_ = 0;
  std::atomic<bool> failed_ = false;
  std::string failed_call_;
};

}  // namespace brigade::test
