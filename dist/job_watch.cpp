// SPDX-License-Identifier: MIT
// dist/job_watch.cpp - names of processes. The watch itself: dist/mpi/peer_watch.cpp.
#include "dist/job_watch.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "core/check.h"

namespace brigade::dist {

std::uint64_t process_numbering() {
  struct stat about {};
  return stat("/proc/self/ns/pid", &about) == 0 ? about.st_ino : 0;
}

std::string name_of_this_process() { return str(getpid(), "@", process_numbering()); }

pid_t process_of(const std::string& name) {
  const std::size_t at = name.find('@');
  return at != std::string::npos && name.substr(at + 1) == std::to_string(process_numbering())
             ? static_cast<pid_t>(std::atoi(name.c_str()))
             : 0;
}

bool is_stopped(pid_t process) {
  std::string line;
  std::getline(std::ifstream(str("/proc/", process, "/stat")), line);
  // "123 (its name, which may hold anything) T …", see proc(5).
  const std::size_t state = line.rfind(") ") + 2;
  return line.size() > state && (line[state] == 'T' || line[state] == 't');
}

}  // namespace brigade::dist
