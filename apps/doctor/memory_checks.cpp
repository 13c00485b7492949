// SPDX-License-Identifier: MIT
// apps/doctor/memory_checks.cpp - room for what ranks share, and for what a run writes.
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "apps/doctor/checks.h"
#include "core/check.h"

namespace brigade::doctor {
namespace {

constexpr double kMiB = 1 << 20;

struct Room {
  double free = 0, size = 0;  ///< Bytes.
};

// Free for us, which is less than what root sees.
bool read_room(const std::string& folder, Room& room) {
  struct statvfs info {};
  if (statvfs(folder.c_str(), &info) != 0) return false;
  const auto block = static_cast<double>(info.f_frsize);
  room = {.free = block * static_cast<double>(info.f_bavail),
          .size = block * static_cast<double>(info.f_blocks)};
  return true;
}

std::string amount(double bytes) {
  return bytes < 1024 * kMiB ? fmt::format("{:.0f} MiB", bytes / kMiB)
                             : fmt::format("{:.1f} GiB", bytes / kMiB / 1024);
}

// The error of writing `bytes` to a new file in `folder` and to the disk behind it; 0: they can be written. Free space
// as the system tells it is not enough: quotas and read-only mounts show here only.
int try_to_write(const std::string& folder, std::size_t bytes) {
  std::string name = folder + "/.brigade-doctor-XXXXXX";
  const int file = mkstemp(name.data());
  if (file < 0) return errno;
  unlink(name.c_str());
  const std::vector<char> data(bytes, 'b');
  int error = 0;
  for (std::size_t done = 0; done < bytes && error == 0;) {
    const ssize_t count = write(file, data.data() + done, bytes - done);
    if (count > 0)
      done += static_cast<std::size_t>(count);
    else if (errno != EINTR)
      error = errno;
  }
  if (error == 0 && fsync(file) != 0) error = errno;
  close(file);
  return error;
}

}  // namespace

Finding check_shared_memory(const std::filesystem::path& folder) {
  Room room;
  const char* const remedy =
      "In a container: docker run --shm-size=1g; else mount -o remount,size=1g /dev/shm. Brigade's own "
      "shared memory "
      "does not count against it, MPI libraries' does.";
  if (!read_room(folder, room)) return warning("shm", str(folder.string(), " is not there"), remedy);
  const std::string line = str(folder.string(), ": ", amount(room.free), " free of ", amount(room.size));
  // 64 MiB is what Docker gives, and what MPI libraries run out of.
  return room.free < 128 * kMiB ? warning("shm", line, remedy) : ok("shm", line);
}

Finding check_disk(const std::filesystem::path& folder) {
  // A run makes its directory: what counts is the nearest one that is there.
  std::filesystem::path there = std::filesystem::absolute(folder).lexically_normal();
  if (!there.has_filename()) there = there.parent_path();  // "DIR/." has become "DIR/".
  std::error_code ignored;
  while (!std::filesystem::exists(there, ignored) && there.has_relative_path()) there = there.parent_path();
  const std::string place = there.string();
  if (!std::filesystem::is_directory(there, ignored))
    return fault("disk", place + " is no directory", "Choose another directory with --out DIR.");
  Room room;
  read_room(place, room);
  const int error = try_to_write(place, 1 << 20);
  const std::string line = str(place, ": ", amount(room.free), " free of ", amount(room.size));
  if (error == ENOSPC || error == EDQUOT)
    return fault("disk", str(line, ", and 1 MiB cannot be written: ", std::strerror(error)),
                 "Free some space there, or write elsewhere with --out DIR.");
  if (error != 0)
    return fault("disk", str(place, " cannot be written to: ", std::strerror(error)),
                 "Write elsewhere with --out DIR, or change who may write there.");
  if (room.free < 512 * kMiB)
    return warning("disk", line,
                   "Free some space: a checkpoint of ResNet-18 takes 43 to 130 MiB, a long run's files 50.");
  return ok("disk", line);
}

}  // namespace brigade::doctor
