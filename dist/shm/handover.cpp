// SPDX-License-Identifier: MIT
// dist/shm/handover.cpp - one byte over a socket, with a descriptor beside it.
#include "dist/shm/handover.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace brigade::dist {
namespace {

// An abstract socket's name begins with a zero byte and vanishes with its last descriptor.
struct Address {
  explicit Address(const std::string& name) {
    name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                    std::min(name.size(), sizeof address.sun_path - 1));
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  socklen_t length = 0;
};

Descriptor new_socket(int flags = 0) {
  return Descriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
}

bool same_user(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == getuid();
}

struct Parcel {
  Parcel() {
    message.msg_iov = &content;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
  }
  char byte = 0;
  iovec content{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
};

void hand_over(int socket, int descriptor) {
  Parcel parcel;
  cmsghdr* const attached = CMSG_FIRSTHDR(&parcel.message);
  attached->cmsg_level = SOL_SOCKET;
  attached->cmsg_type = SCM_RIGHTS;
  attached->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(attached), &descriptor, sizeof descriptor);
  static_cast<void>(sendmsg(socket, &parcel.message, MSG_NOSIGNAL));  // Who has gone needs no memory.
}

}  // namespace

Descriptor::~Descriptor() {
  if (number_ >= 0) close(number_);
}

Descriptor make_memory(std::int64_t bytes) {
  // A memfd counts as a file: growing it beyond `ulimit -f` is answered with SIGXFSZ, which kills the process.
  rlimit files{};
  if (getrlimit(RLIMIT_FSIZE, &files) != 0 || files.rlim_cur < static_cast<rlim_t>(bytes))
    return Descriptor();
  Descriptor memory(memfd_create("brigade", MFD_CLOEXEC));
  if (memory && ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0) return Descriptor();
  return memory;
}

std::optional<Handover> Handover::listen(const std::string& name) {
  const Address address(name);
  Descriptor socket = new_socket(SOCK_NONBLOCK);
  if (!socket || bind(socket.get(), address.get(), address.length) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0)
    return std::nullopt;
  return Handover(std::move(socket));
}

int Handover::serve(const Descriptor& memory) noexcept {
  for (int served = 0;;) {
    const Descriptor caller(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!caller) return served;
    if (!same_user(caller.get())) continue;
    hand_over(caller.get(), memory.get());
    ++served;
  }
}

Descriptor ask_for_memory(const std::string& name, std::chrono::seconds patience) {
  const Address address(name);
  const Descriptor socket = new_socket();
  const timeval limit{.tv_sec = patience.count(), .tv_usec = 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  if (connect(socket.get(), address.get(), address.length) != 0 || !same_user(socket.get()))
    return Descriptor();
  Parcel parcel;
  if (recvmsg(socket.get(), &parcel.message, MSG_CMSG_CLOEXEC) != 1) return Descriptor();
  const cmsghdr* const attached = CMSG_FIRSTHDR(&parcel.message);
  if (attached == nullptr || attached->cmsg_type != SCM_RIGHTS) return Descriptor();
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(attached), sizeof descriptor);
  return Descriptor(descriptor);
}

}  // namespace brigade::dist
