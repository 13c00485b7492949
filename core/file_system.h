// SPDX-License-Identifier: MIT
// core/file_system.h - the system calls that put files on disk, behind one small interface: tests fail the n-th of
// them, and see what is left. Read next: core/durable_file.h, their main user.
#pragma once

#include <cstddef>
#include <cstdint>

namespace brigade {

/// The system's calls, with its return values and errno. A test overrides what it wants to fail.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual int open(const char* path, int flags, unsigned mode);
  virtual std::int64_t write(int file, const void* data, std::size_t bytes);
  virtual int sync(int file);  ///< fsync
  virtual int close(int file);
  virtual int rename(const char* from, const char* to);
  virtual int make_directory(const char* path);
  virtual int remove(const char* path);  ///< A file or an empty directory.
};

/// The real one. It has no state.
FileSystem& file_system();

}  // namespace brigade
