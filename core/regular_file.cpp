// SPDX-License-Identifier: MIT
// core/regular_file.cpp - see the header. The name is looked at twice: before opening, because opening a device can
// have effects, and after it, because a name may point elsewhere by then.
#include "core/regular_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "core/check.h"

namespace brigade {
namespace {

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

std::string last_error() { return std::generic_category().message(errno); }

}  // namespace

RegularFile::RegularFile(const std::filesystem::path& path, std::string where, std::int64_t max_bytes)
    : where_(std::move(where)) {
  struct stat status {};
  // A name with a zero byte would silently mean the part before it.
  BRIGADE_CHECK(path.native().find('\0') == std::string::npos, where_,
                "cannot be read; its name has a zero byte");
  BRIGADE_CHECK(stat(path.c_str(), &status) == 0, where_, "cannot be read; ", last_error());
  BRIGADE_CHECK(S_ISREG(status.st_mode), where_, "must be a regular file; got ", kind_of(status.st_mode));

  // O_NONBLOCK: if a pipe has taken the place of the file since, open() does not wait for its writer.
  descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  BRIGADE_CHECK(descriptor_ >= 0, where_, "cannot be read; ", last_error());
  try {
    BRIGADE_CHECK(fstat(descriptor_, &status) == 0, where_, "cannot be read; ", last_error());
    BRIGADE_CHECK(S_ISREG(status.st_mode), where_, "must be a regular file; got ", kind_of(status.st_mode));
    bytes_ = status.st_size;
    BRIGADE_CHECK(bytes_ <= max_bytes, where_, "may have ", max_bytes, " bytes; got ", bytes_);
  } catch (...) {
    close(descriptor_);  // The destructor of an object that was never made does not run.
    throw;
  }
}

RegularFile::~RegularFile() { close(descriptor_); }

void RegularFile::read(void* to, std::int64_t bytes) {
  read_at(read_, to, bytes);
  read_ += bytes;
}

void RegularFile::read_at(std::int64_t offset, void* to, std::int64_t bytes) const {
  BRIGADE_CHECK(offset >= 0 && offset <= bytes_ && bytes <= bytes_ - offset, where_,
                "the file ended while it was read");
  char* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = pread(descriptor_, at, static_cast<std::size_t>(bytes), offset);
    if (got < 0 && errno == EINTR) continue;
    BRIGADE_CHECK(got >= 0, where_, "cannot be read; ", last_error());
    BRIGADE_CHECK(got > 0, where_, "the file ended while it was read");  // It has shrunk since it was opened.
    at += got;
    offset += got;
    bytes -= got;
  }
}

Storage RegularFile::map() const {
  const auto size = static_cast<std::size_t>(bytes_);
  void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, descriptor_, 0);
  BRIGADE_CHECK(memory != MAP_FAILED, where_, "cannot be mapped; ", last_error());
  return Storage({}, bytes_,
                 std::shared_ptr<std::byte>(static_cast<std::byte*>(memory),
                                            [size](std::byte* begin) { munmap(begin, size); }));
}

std::string RegularFile::read_rest() {
  std::string text(static_cast<std::size_t>(bytes_ - read_), '\0');
  read(text.data(), bytes_ - read_);
  return text;
}

}  // namespace brigade
