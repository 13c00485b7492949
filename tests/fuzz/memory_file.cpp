// SPDX-License-Identifier: MIT
// tests/fuzz/memory_file.cpp - a file without a disk: a parser sees the same as with a real one, thousands of times a
// second.
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fuzz/targets.h"

namespace brigade::fuzz {

MemoryFile::MemoryFile() : descriptor_(memfd_create("fuzz", MFD_CLOEXEC)) {
  require(descriptor_ >= 0, "the system has memory files");
  path_ = str("/proc/self/fd/", descriptor_);
}

void MemoryFile::hold(std::string_view bytes) {
  const auto size = static_cast<off_t>(bytes.size());
  require(ftruncate(descriptor_, size) == 0, "a memory file can be resized");
  require(pwrite(descriptor_, bytes.data(), bytes.size(), 0) == size, "a memory file can be written");
}

}  // namespace brigade::fuzz
