// SPDX-License-Identifier: MIT
// tests/apps/planted/no_ptrace.cpp - a container without SYS_PTRACE: nobody reads the memory of another process.
#include <sys/uio.h>

#include <cerrno>

extern "C" ssize_t process_vm_readv(pid_t, const iovec*, unsigned long, const iovec*, unsigned long,
                                    unsigned long) noexcept {
  errno = EPERM;
  return -1;
}
