// SPDX-License-Identifier: MIT
// tests/support/temp_dir.h - a directory that a test case has for itself, and files in it.
#pragma once

#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "core/check.h"

namespace brigade::test {

/// Removed with everything in it at the end of the scope.
class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "brigade_test_XXXXXX").string();
    BRIGADE_CHECK(mkdtemp(name.data()) != nullptr, "cannot make a temporary directory like ", name);
    path_ = name;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

/// Creates or cuts `path` to `bytes` zeros (sparse: a CIFAR file of zeros is 10,000
/// black images of class 0, for free).
inline void write_zeros(const std::filesystem::path& path, std::uintmax_t bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary | std::ios::trunc);
  std::filesystem::resize_file(path, bytes);
}

inline void overwrite_byte(const std::filesystem::path& path, std::int64_t offset, char value) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(offset);
  file.put(value);
}

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace brigade::test
