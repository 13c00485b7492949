// SPDX-License-Identifier: MIT
// core/regular_file.h - the one way to open a file that a user or a stranger named: a regular file of limited size.
// A pipe would block its reader for ever, /dev/zero never ends, and opening a device may do something by itself.
// Read before: core/storage.h. Used by: core/safetensors.cpp, dist/checkpoint, data/cifar10.cpp, apps/telemetry.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>

#include "core/storage.h"

namespace brigade {

/// A file open for reading. It must not be written to meanwhile: its size is taken once.
class RegularFile {
 public:
  /// Throws Error that begins with `where` ("report: run/config.json: ") for a directory, pipe, socket or device, also
  /// behind a symbolic link, for what cannot be read, and for more than `max_bytes`. Never blocks on what it opens.
  RegularFile(const std::filesystem::path& path, std::string where,
              std::int64_t max_bytes = std::numeric_limits<std::int64_t>::max());
  ~RegularFile();
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;

  std::int64_t bytes() const { return bytes_; }
  /// For mmap and the like; closed by the destructor.
  int descriptor() const { return descriptor_; }

  /// The next `bytes` bytes, all of them. Throws Error if the file ends before or the disk fails.
  void read(void* to, std::int64_t bytes);
  /// What has not been read yet.
  std::string read_rest();
  /// `bytes` bytes from `offset` on, wherever read() stands. Throws like read().
  void read_at(std::int64_t offset, void* to, std::int64_t bytes) const;
  /// A private mapping of all of it, which outlives this object. Not of an empty file.
  Storage map() const;

 private:
  std::string where_;
  int descriptor_ = -1;
  std::int64_t bytes_ = 0, read_ = 0;
};

}  // namespace brigade
