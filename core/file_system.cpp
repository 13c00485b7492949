// SPDX-License-Identifier: MIT
// core/file_system.cpp - the real calls.
#include "core/file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

namespace brigade {

int FileSystem::open(const char* path, int flags, unsigned mode) { return ::open(path, flags, mode); }
std::int64_t FileSystem::write(int file, const void* data, std::size_t bytes) {
  return ::write(file, data, bytes);
}
int FileSystem::sync(int file) { return ::fsync(file); }
int FileSystem::close(int file) { return ::close(file); }
int FileSystem::rename(const char* from, const char* to) { return std::rename(from, to); }
int FileSystem::make_directory(const char* path) { return ::mkdir(path, 0777); }
int FileSystem::remove(const char* path) { return std::remove(path); }

FileSystem& file_system() {
  static FileSystem real;
  return real;
}

}  // namespace brigade
