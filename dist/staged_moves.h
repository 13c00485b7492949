// SPDX-License-Identifier: MIT
// dist/staged_moves.h - collectives between ranks that can read each other's staging memory, wherever that lies: each
// puts pieces of its tensor there, one behind the other, and takes from the others' what it needs.
// Users: dist/shm/shm_transport.cpp (of a host), dist/ipc/ipc_carrier.cpp (of a device).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "dist/transport.h"

namespace brigade::dist {

/// One rank's staging memory, in two halves that take turns, and its view of the others'. What is said of an order
/// here is, on a device, the order of the calling thread's current stream.
class Staging {
 public:
  virtual ~Staging() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::int64_t half_bytes() const = 0;
  /// Up to so many bytes every rank reduces all of a piece for itself; a longer one is cut into slices, which costs a
  /// second gate.
  virtual std::int64_t whole_bytes() const = 0;

  /// The half that this rank may write to: behind one gate, nobody reads it any more.
  virtual std::byte* filling() = 0;
  /// Behind it, filling() is the other half, and at() shows what each rank has filled before. `bytes`: of the call;
  /// ranks that disagree about it throw CommError, all of them.
  virtual void gate(std::int64_t bytes) = 0;
  virtual std::byte* at(int rank) const = 0;
  /// Behind it, at() shows what each rank has changed in its own since.
  virtual void gate_again() = 0;

  virtual void copy(std::byte* to, const std::byte* from, std::int64_t bytes) = 0;
  /// reduce_buffers() into one buffer, which may be one of the sources.
  virtual void reduce(std::span<const std::byte* const> sources, std::byte* out, DType dtype,
                      std::int64_t count, Reduce op) = 0;
};

/// The collectives of a Transport, with its words about tensors. Sums are taken in rank order, whoever takes them, and
/// rounded once.
class StagedMoves {
 public:
  explicit StagedMoves(Staging& staging) : staging_(staging) {}

  void broadcast(Tensor& t, int root);
  void all_reduce(Tensor& t, Reduce op);
  void reduce(Tensor& t, Reduce op, int root);
  void reduce_scatter(const Tensor& t, Tensor& out, Reduce op);
  void all_gather(const Tensor& t, Tensor& out);
  void gather(const Tensor& t, Tensor& out, int root);
  void scatter(const Tensor& t, Tensor& out, int root);
  void all_to_all(const Tensor& t, Tensor& out);

 private:
  template <class Fill, class Read>
  void pieces(std::int64_t count, std::int64_t item_bytes, std::int64_t bytes, const Fill& fill,
              const Read& read);
  std::span<const std::byte* const> sources(std::int64_t offset);

  Staging& staging_;
  std::vector<const std::byte*> sources_;  // Kept, so that no call allocates.
};

/// Elements of rank k's slice of `count`. Slices end at cache lines, so that two ranks never write to the same one.
inline std::pair<std::int64_t, std::int64_t> slice_of(std::int64_t count, std::int64_t item_bytes, int k,
                                                      int ranks) {
  const std::int64_t line = kAlignment / item_bytes;
  const auto cut = [&](std::int64_t i) { return i == ranks ? count : count * i / ranks / line * line; };
  return {cut(k), cut(k + 1)};
}

}  // namespace brigade::dist
