// SPDX-License-Identifier: MIT
// core/durable_file.h - files that are whole or not there, whatever happens: kill -9, a power cut, a full disk.
//
//   temporary name -> write -> fsync -> rename -> fsync of the directory
//
// The data must be on disk before the name points to them, and the name is on disk only when the directory is. (After
// Pillai et al., "All file systems are not created equal", OSDI 2014.) Read before: core/file_system.h.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/checksum.h"
#include "core/file_system.h"

namespace brigade {

/// What a file holds, taken while it was written.
struct FileDigest {
  std::int64_t bytes = 0;
  std::string xxh3_128;  ///< Of all its bytes: 32 hexadecimal digits.
  friend bool operator==(const FileDigest&, const FileDigest&) = default;
};

/// A file that exists under its name only once commit() has begun to return. All failures throw Error,
/// "what: cannot write PATH: No space left on device; N bytes needed", and leave no temporary file.
class DurableFile {
 public:
  /// `bytes_needed`: what will be written, for error messages. `what`: who writes.
  DurableFile(std::filesystem::path path, std::int64_t bytes_needed, std::string what,
              FileSystem& files = file_system());
  ~DurableFile();  ///< Removes the temporary file of what was not committed.
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  /// Goes on where the system took only a part.
  void write(const void* data, std::int64_t bytes);
  /// The file is on disk under its name when this returns. Throws Error; the old file is intact then, or, if only the
  /// directory could not be synchronised, the new one.
  FileDigest commit();

  const std::filesystem::path& path() const { return path_; }

 private:
  [[noreturn]] void fail_with_errno(const char* action) const;

  std::filesystem::path path_, temporary_;
  std::string what_;
  FileSystem& files_;
  std::int64_t bytes_needed_, written_ = 0;
  Checksum128 checksum_;
  int file_ = -1;
  bool renamed_ = false;
};

/// A whole file at once.
FileDigest write_durably(const std::filesystem::path& path, std::string_view text, const std::string& what,
                         FileSystem& files = file_system());

/// One that is there already is fine. Throws Error.
void make_directory(const std::filesystem::path& path, const std::string& what,
                    FileSystem& files = file_system());
/// Renames a file or directory, then makes the new name durable. Throws Error.
void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to,
                    const std::string& what, FileSystem& files = file_system());
/// Makes the names in a directory durable. Throws Error, but not where the file system knows no such thing.
void sync_directory(const std::filesystem::path& path, const std::string& what,
                    FileSystem& files = file_system());

/// The end of names under which DurableFile writes, ".part-PID-NUMBER", is in `name`: what a killed program left.
bool is_temporary_name(std::string_view name);

}  // namespace brigade
