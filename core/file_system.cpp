// SPDX-License-Identifier: MIT
// core/file_system.cpp - the real calls, each a point where a fault can be asked for (core/fault_point.h).
#include "core/file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <vector>

#include "core/fault_point.h"

namespace brigade {
namespace {

// Whether the call has failed already.
bool struck(FaultAt at, const char* path) {
  if (!faults_armed()) return false;
  const int error = io_fault(at, path).error;
  if (error != 0) errno = error;
  return error != 0;
}

std::int64_t write_with_faults(int file, const void* data, std::size_t bytes) {
  // A bit may be flipped on the way to the disk, but not in the caller's memory.
  const auto* begin = static_cast<const std::byte*>(data);
  std::vector<std::byte> copy(begin, begin + bytes);
  const IoFault fault = io_fault(FaultAt::checkpoint_write, {}, copy);
  if (fault.error == 0) return ::write(file, copy.data(), fault.bytes);
  errno = fault.error;
  return -1;
}

}  // namespace

int FileSystem::open(const char* path, int flags, unsigned mode) {
  return struck(FaultAt::checkpoint_open, path) ? -1 : ::open(path, flags, mode);
}
std::int64_t FileSystem::write(int file, const void* data, std::size_t bytes) {
  return faults_armed() ? write_with_faults(file, data, bytes) : ::write(file, data, bytes);
}
int FileSystem::sync(int file) { return struck(FaultAt::checkpoint_fsync, "") ? -1 : ::fsync(file); }
int FileSystem::close(int file) { return ::close(file); }
int FileSystem::rename(const char* from, const char* to) {
  return struck(FaultAt::checkpoint_rename, to) ? -1 : std::rename(from, to);
}
int FileSystem::make_directory(const char* path) {
  return struck(FaultAt::checkpoint_mkdir, path) ? -1 : ::mkdir(path, 0777);
}
int FileSystem::remove(const char* path) { return std::remove(path); }

FileSystem& file_system() {
  static FileSystem real;
  return real;
}

}  // namespace brigade
