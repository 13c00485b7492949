// SPDX-License-Identifier: MIT
// dist/shm/process_end.cpp - see the header.
#include "dist/shm/process_end.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace brigade::dist {

Descriptor open_process(pid_t process) {
  return Descriptor(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
}

bool has_ended(const Descriptor& opened, pid_t process) {
  if (!opened) return kill(process, 0) != 0 && errno == ESRCH;
  pollfd one{.fd = opened.get(), .events = POLLIN, .revents = 0};
  return poll(&one, 1, 0) > 0;
}

}  // namespace brigade::dist
