// SPDX-License-Identifier: MIT
// core/directory_claim.cpp - a lock on the open directory.
#include "core/directory_claim.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace brigade {

DirectoryClaim::DirectoryClaim(const std::filesystem::path& directory)
    : directory_(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  refused_ = directory_ >= 0 && flock(directory_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

DirectoryClaim::~DirectoryClaim() {
  if (directory_ >= 0) close(directory_);
}

DirectoryClaim::DirectoryClaim(DirectoryClaim&& other) noexcept
    : directory_(std::exchange(other.directory_, -1)), refused_(other.refused_) {}

DirectoryClaim& DirectoryClaim::operator=(DirectoryClaim&& other) noexcept {
  std::swap(directory_, other.directory_);
  std::swap(refused_, other.refused_);
  return *this;
}

}  // namespace brigade
