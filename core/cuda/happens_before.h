// SPDX-License-Identifier: MIT
// core/cuda/happens_before.h - finds accesses of two streams to the same memory that nothing orders: what a missing
// wait for an event leads to, whether or not it shows in a result. Told of every access, record and wait; no CUDA in
// here. Vector clocks: C. J. Fidge, "Timestamps in Message-Passing Systems That Preserve the Partial Ordering", 1988.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace brigade {

enum class Access : std::uint8_t { read, write };

/// Streams are the processes, and the host is one, too: what it gives a stream comes behind all that the host has seen.
/// Not thread-safe: calls come in the order in which the host made the calls that they stand for.
class HappensBefore {
 public:
  using Stream = std::uintptr_t;

  /// `stream` is given work that reads or writes [memory, memory + bytes). Memory that is handed out anew is written.
  /// Returns what is wrong, in words, or nothing: an earlier access of another stream, one of the two a write, which
  /// this one does not come behind.
  std::string access(Stream stream, const void* memory, std::int64_t bytes, Access access);

  /// Names the point behind all that `stream` was given.
  std::size_t record(Stream stream);
  /// What `stream` is given from now on comes behind `event`.
  void wait(Stream stream, std::size_t event);
  /// The host has seen that `event` is done.
  void host_saw(std::size_t event);

 private:
  using Clock = std::map<Stream, std::uint64_t>;  // How much of each stream comes before; absent: nothing.
  struct Past {
    std::uintptr_t begin, end;
    Stream stream;
    std::uint64_t tick;  // The stream's own clock.
    Access access;
  };

  static void join(Clock& clock, const Clock& other);

  std::map<Stream, Clock> clocks_;
  Clock host_;
  std::vector<Clock> events_;
  std::vector<Past> past_;  // Accesses that a later one could still be unordered with.
};

}  // namespace brigade
