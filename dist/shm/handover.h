// SPDX-License-Identifier: MIT
// dist/shm/handover.h - memory that several processes of a host share, without a name in any file system: a memfd whose
// descriptor travels over an abstract Unix socket. What has no name cannot be stale or be left behind, however its
// processes end. Users: dist/shm/host_memory.h, dist/mpi/arrival_board.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace brigade::dist {

/// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor();
  int get() const { return number_; }
  int release() { return std::exchange(number_, -1); }
  explicit operator bool() const { return number_ >= 0; }

 private:
  int number_;
};

/// `bytes` of zeroed memory without a name; no descriptor if the system has none, or if `ulimit -f` forbids files
/// of that size.
Descriptor make_memory(std::int64_t bytes);

/// Hands a descriptor to whoever asks at a name. Abstract names have no permissions: only processes of the same user
/// are served, and only they are believed.
class Handover {
 public:
  /// Listens at `name`; none if somebody does already.
  static std::optional<Handover> listen(const std::string& name);
  /// Gives `memory` to all that have asked since; does not wait. Returns how many were served.
  int serve(const Descriptor& memory) noexcept;
  int door() const { return socket_.get(); }  ///< Readable when somebody asks.

 private:
  explicit Handover(Descriptor socket) : socket_(std::move(socket)) {}
  Descriptor socket_;
};

/// The descriptor that the listener at `name` hands out; none if nobody listens, or does not answer within `patience`.
Descriptor ask_for_memory(const std::string& name, std::chrono::seconds patience);

}  // namespace brigade::dist
