// SPDX-License-Identifier: MIT
// dist/mpi/mpi_transport.cpp - blocking MPI calls, in pieces that MPI's int counts can express.
#include "dist/mpi/mpi_transport.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "dist/chunks.h"
#include "dist/mpi/mpi_calls.h"
#include "dist/reduce_buffers.h"

namespace brigade::dist {
namespace {

constexpr int kHeaderTag = 1, kDataTag = 2;

// Goes ahead of every point-to-point message: MPI itself tells neither the dtype nor a size beyond int.
struct Header {
  std::int64_t count = 0;
  std::int64_t dtype = 0;
};

int as_int(std::int64_t n) { return static_cast<int>(n); }  // n is one piece: below INT_MAX.

std::byte* element(const Tensor& t, std::int64_t i) { return t.raw() + i * t.item_bytes(); }

class MpiTransport final : public Transport {
 public:
  MpiTransport(std::shared_ptr<std::atomic<bool>> broken, std::int64_t max_chunk_bytes)
      : broken_(std::move(broken)), max_chunk_bytes_(max_chunk_bytes) {
    check_usable();
    // A communicator of our own: messages of other groups and libraries cannot be taken for ours.
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
    check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check_mpi(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view name() const override { return "mpi"; }

  void send(const Tensor& t, int to) override {
    check_usable();
    const Header header = header_of(t);
    check_mpi(MPI_Send(&header, sizeof header, MPI_BYTE, to, kHeaderTag, comm_), "MPI_Send");
    pieces(t, [&](std::int64_t at, std::int64_t n) {
      check_mpi(MPI_Send(element(t, at), as_int(n), mpi_type(t.dtype()), to, kDataTag, comm_), "MPI_Send");
    });
  }

  void recv(Tensor& t, int from) override {
    check_usable();
    Header header;
    check_mpi(MPI_Recv(&header, sizeof header, MPI_BYTE, from, kHeaderTag, comm_, MPI_STATUS_IGNORE),
              "MPI_Recv");
    check_header(header, t, from);
    pieces(t, [&](std::int64_t at, std::int64_t n) {
      check_mpi(
          MPI_Recv(element(t, at), as_int(n), mpi_type(t.dtype()), from, kDataTag, comm_, MPI_STATUS_IGNORE),
          "MPI_Recv");
    });
  }

  void send_recv(const Tensor& sent, int to, Tensor& received, int from) override {
    check_usable();
    const Header mine = header_of(sent);
    Header theirs;
    check_mpi(MPI_Sendrecv(&mine, sizeof mine, MPI_BYTE, to, kHeaderTag, &theirs, sizeof theirs, MPI_BYTE,
                           from, kHeaderTag, comm_, MPI_STATUS_IGNORE),
              "MPI_Sendrecv");
    check_header(theirs, received, from);
    // The two may differ in length and so in their number of pieces: the shorter one idles at the end.
    const std::int64_t longest = std::max(sent.bytes(), received.bytes());
    for_each_chunk(longest, chunk(1), [&](std::int64_t at, std::int64_t n) {
      const auto part = [&](const Tensor& t) {
        return as_int(std::clamp<std::int64_t>(t.bytes() - at, 0, n));
      };
      check_mpi(MPI_Sendrecv(sent.raw() + at, part(sent), MPI_BYTE, part(sent) > 0 ? to : MPI_PROC_NULL,
                             kDataTag, received.raw() + at, part(received), MPI_BYTE,
                             part(received) > 0 ? from : MPI_PROC_NULL, kDataTag, comm_, MPI_STATUS_IGNORE),
                "MPI_Sendrecv");
    });
  }

  void broadcast(Tensor& t, int root) override {
    check_usable();
    pieces(t, [&](std::int64_t at, std::int64_t n) {
      check_mpi(MPI_Bcast(element(t, at), as_int(n), mpi_type(t.dtype()), root, comm_), "MPI_Bcast");
    });
  }

  void all_reduce(Tensor& t, Reduce op) override {
    check_usable();
    Tensor sum = widened(t);
    pieces(sum, [&](std::int64_t at, std::int64_t n) {
      check_mpi(
          MPI_Allreduce(MPI_IN_PLACE, element(sum, at), as_int(n), mpi_type(sum.dtype()), ops_[op], comm_),
          "MPI_Allreduce");
    });
    finish(sum, t, op, size_);
  }

  void reduce(Tensor& t, Reduce op, int root) override {
    check_usable();
    Tensor sum = widened(t);
    pieces(sum, [&](std::int64_t at, std::int64_t n) {
      const bool here = rank_ == root;
      check_mpi(MPI_Reduce(here ? MPI_IN_PLACE : element(sum, at), here ? element(sum, at) : nullptr,
                           as_int(n), mpi_type(sum.dtype()), ops_[op], root, comm_),
                "MPI_Reduce");
    });
    if (rank_ == root) finish(sum, t, op, size_);
  }

  void reduce_scatter(const Tensor& t, Tensor& out, Reduce op) override {
    check_usable();
    const Tensor wide = widened(t);
    // MPI forbids a receive buffer inside the send buffer, and 16-bit results are rounded at the end anyway.
    Tensor sum = Tensor::empty({out.numel()}, wide.dtype());
    blocks(out.numel(), wide, [&](std::int64_t at, std::int64_t n) {
      const Tensor sent = packed(wide, at, n);
      check_mpi(MPI_Reduce_scatter_block(sent.raw(), element(sum, at), as_int(n), mpi_type(wide.dtype()),
                                         ops_[op], comm_),
                "MPI_Reduce_scatter_block");
    });
    if (op == Reduce::mean || sum.dtype() != out.dtype())
      finish(sum, out, op, size_);
    else
      copy(out.raw(), sum.raw(), out.bytes());
  }

  void all_gather(const Tensor& t, Tensor& out) override {
    check_usable();
    blocks(t.numel(), t, [&](std::int64_t at, std::int64_t n) {
      Tensor all = landing(out, n);
      // t may be this rank's block of out; MPI wants to be told so.
      const bool in_place = all.raw() == out.raw() && t.raw() == element(out, rank_ * n);
      const MPI_Datatype type = mpi_type(t.dtype());
      check_mpi(MPI_Allgather(in_place ? MPI_IN_PLACE : element(t, at), as_int(n), type, all.raw(), as_int(n),
                              type, comm_),
                "MPI_Allgather");
      unpack(all, out, at, n);
    });
  }

  void gather(const Tensor& t, Tensor& out, int root) override {
    check_usable();
    blocks(t.numel(), t, [&](std::int64_t at, std::int64_t n) {
      Tensor all = rank_ == root ? landing(out, n) : Tensor();
      const MPI_Datatype type = mpi_type(t.dtype());
      check_mpi(MPI_Gather(element(t, at), as_int(n), type, all.defined() ? all.raw() : nullptr, as_int(n),
                           type, root, comm_),
                "MPI_Gather");
      if (rank_ == root) unpack(all, out, at, n);
    });
  }

  void scatter(const Tensor& t, Tensor& out, int root) override {
    check_usable();
    blocks(out.numel(), out, [&](std::int64_t at, std::int64_t n) {
      const Tensor sent = rank_ == root ? packed(t, at, n) : Tensor();
      const MPI_Datatype type = mpi_type(out.dtype());
      check_mpi(MPI_Scatter(sent.defined() ? sent.raw() : nullptr, as_int(n), type, element(out, at),
                            as_int(n), type, root, comm_),
                "MPI_Scatter");
    });
  }

  void all_to_all(const Tensor& t, Tensor& out) override {
    check_usable();
    blocks(t.numel() / size_, t, [&](std::int64_t at, std::int64_t n) {
      const Tensor sent = packed(t, at, n);
      Tensor all = landing(out, n);
      const MPI_Datatype type = mpi_type(t.dtype());
      check_mpi(MPI_Alltoall(sent.raw(), as_int(n), type, all.raw(), as_int(n), type, comm_), "MPI_Alltoall");
      unpack(all, out, at, n);
    });
  }

  void barrier() override {
    check_usable();
    check_mpi(MPI_Barrier(comm_), "MPI_Barrier");
  }

  void abort(const std::string& reason) noexcept override {
    std::lock_guard lock(mutex_);
    if (reason_.empty()) reason_ = reason;
    *broken_ = true;
  }

  // Without close(), the communicator stays until MPI ends: freeing one is collective.
  void close() override {
    barrier();
    check_mpi(MPI_Comm_free(&comm_), "MPI_Comm_free");
  }

 private:
  void check_usable() const {
    if (!*broken_) return;
    std::lock_guard lock(mutex_);
    throw CommError(reason_.empty() ? "mpi: another group of this process was aborted" : reason_);
  }

  static Header header_of(const Tensor& t) { return {t.numel(), static_cast<std::int64_t>(t.dtype())}; }

  void check_header(const Header& header, const Tensor& t, int from) const {
    if (header.count == t.numel() && header.dtype == static_cast<std::int64_t>(t.dtype())) return;
    throw CommError(str("rank ", from, " sent ", static_cast<DType>(header.dtype), " x ", header.count,
                        ", rank ", rank_, " receives ", t.dtype(), " x ", t.numel()));
  }

  static void copy(std::byte* to, const std::byte* from, std::int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }

  // Elements of `item_bytes` in one piece, at least one.
  std::int64_t chunk(std::int64_t item_bytes) const {
    return std::max<std::int64_t>(1, max_chunk_bytes_ / item_bytes);
  }

  // body(offset, n) for piece after piece of t.
  template <class Body>
  void pieces(const Tensor& t, const Body& body) const {
    for_each_chunk(t.numel(), chunk(t.item_bytes()), body);
  }

  // Calls that move a block of `count` elements for every rank: body(offset, n) for piece after piece of all
  // blocks at once. What is cut lies apart in memory, so it passes through packed() and landing() + unpack().
  template <class Body>
  void blocks(std::int64_t count, const Tensor& t, const Body& body) const {
    for_each_chunk(count, chunk(t.item_bytes() * size_), body);
  }

  // Elements [at, at + n) of each rank's block, side by side: t itself if that is all of it.
  Tensor packed(const Tensor& t, std::int64_t at, std::int64_t n) const {
    const std::int64_t block = t.numel() / size_;
    if (n == block) return t;
    Tensor part = Tensor::empty({n * size_}, t.dtype());
    for (int r = 0; r < size_; ++r)
      copy(element(part, r * n), element(t, r * block + at), n * t.item_bytes());
    return part;
  }

  // Where n elements of each rank arrive: `out` itself if that is all of it. unpack() puts them in place.
  Tensor landing(const Tensor& out, std::int64_t n) const {
    return n * size_ == out.numel() ? out : Tensor::empty({n * size_}, out.dtype());
  }
  void unpack(const Tensor& part, Tensor& out, std::int64_t at, std::int64_t n) const {
    if (part.raw() == out.raw()) return;
    const std::int64_t block = out.numel() / size_;
    for (int r = 0; r < size_; ++r)
      copy(element(out, r * block + at), element(part, r * n), n * out.item_bytes());
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  MpiOps ops_;
  std::shared_ptr<std::atomic<bool>> broken_;
  std::int64_t max_chunk_bytes_;
  mutable std::mutex mutex_;
  std::string reason_;  // Guarded by mutex_.
};

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(std::shared_ptr<std::atomic<bool>> broken,
                                              std::int64_t max_chunk_bytes) {
  return std::make_unique<MpiTransport>(std::move(broken), max_chunk_bytes);
}

}  // namespace brigade::dist
