// SPDX-License-Identifier: MIT
// core/durable_file.cpp - see the header.
#include "core/durable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

#include "core/check.h"

namespace brigade {
namespace {

constexpr std::string_view kTemporary = ".part-";

[[noreturn]] void fail_with_errno(const std::string& what, const char* action,
                                  const std::filesystem::path& path) {
  const int code = errno;
  fail(str(what, ": cannot ", action, " ", path.string(), ": ", std::generic_category().message(code)));
}

}  // namespace

DurableFile::DurableFile(std::filesystem::path path, std::int64_t bytes_needed, std::string what,
                         FileSystem& files)
    : path_(std::move(path)), what_(std::move(what)), files_(files), bytes_needed_(bytes_needed) {
  // Unique among processes and threads that write to one place.
  static std::atomic<int> counter{0};
  temporary_ = path_;
  temporary_ += str(kTemporary, getpid(), "-", counter++);
  file_ = files_.open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file_ < 0) fail_with_errno("create");
}

DurableFile::~DurableFile() {
  if (file_ >= 0) files_.close(file_);
  if (!renamed_) files_.remove(temporary_.c_str());
}

void DurableFile::write(const void* data, std::int64_t bytes) {
  const char* at = static_cast<const char*>(data);
  checksum_.update({static_cast<const std::byte*>(data), static_cast<std::size_t>(bytes)});
  while (bytes > 0) {
    const std::int64_t taken = files_.write(file_, at, static_cast<std::size_t>(bytes));
    if (taken < 0 && errno == EINTR) continue;
    if (taken == 0) errno = ENOSPC;  // No progress, and no error: there is no room for a byte.
    if (taken <= 0) fail_with_errno("write");
    at += taken;
    bytes -= taken;
    written_ += taken;
  }
}

FileDigest DurableFile::commit() {
  if (files_.sync(file_) != 0) fail_with_errno("sync");
  if (files_.close(std::exchange(file_, -1)) != 0) fail_with_errno("close");
  if (files_.rename(temporary_.c_str(), path_.c_str()) != 0) fail_with_errno("rename");
  renamed_ = true;
  sync_directory(path_.has_parent_path() ? path_.parent_path() : ".", what_, files_);
  return {written_, checksum_.hex()};
}

void DurableFile::fail_with_errno(const char* action) const {
  const int code = errno;
  fail(str(what_, ": cannot ", action, " ", path_.string(), ": ", std::generic_category().message(code), "; ",
           bytes_needed_, " bytes needed"));
}

FileDigest write_durably(const std::filesystem::path& path, std::string_view text, const std::string& what,
                         FileSystem& files) {
  const auto bytes = static_cast<std::int64_t>(text.size());
  DurableFile file(path, bytes, what, files);
  file.write(text.data(), bytes);
  return file.commit();
}

void make_directory(const std::filesystem::path& path, const std::string& what, FileSystem& files) {
  if (files.make_directory(path.c_str()) == 0) return;
  const int code = errno;
  std::error_code ignored;
  if (code == EEXIST && std::filesystem::is_directory(path, ignored)) return;
  errno = code;
  fail_with_errno(what, "create the directory", path);
}

void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to,
                    const std::string& what, FileSystem& files) {
  if (files.rename(from.c_str(), to.c_str()) != 0)
    fail_with_errno(what, str("rename ", from.string(), " to").c_str(), to);
  sync_directory(to.has_parent_path() ? to.parent_path() : ".", what, files);
}

void sync_directory(const std::filesystem::path& path, const std::string& what, FileSystem& files) {
  const int directory = files.open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  if (directory < 0) fail_with_errno(what, "open the directory", path);
  const int result = files.sync(directory), code = errno;
  files.close(directory);  // Nothing was written to it: there is nothing to lose.
  if (result == 0 || code == EINVAL || code == ENOTSUP) return;
  errno = code;
  fail_with_errno(what, "sync the directory", path);
}

bool is_temporary_name(std::string_view name) { return name.find(kTemporary) != std::string_view::npos; }

}  // namespace brigade
