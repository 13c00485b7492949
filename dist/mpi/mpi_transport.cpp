// SPDX-License-Identifier: MIT
// dist/mpi/mpi_transport.cpp - MPI calls, in pieces that MPI's int counts can express, and how to wait for them.
#include "dist/mpi/mpi_transport.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "dist/algorithms/algorithms.h"
#include "dist/chunks.h"
#include "dist/mpi/mpi_calls.h"
#include "dist/reduce_buffers.h"

namespace brigade::dist {
namespace {

constexpr int kHeaderTag = 1, kDataTag = 2;

// Point-to-point messages go in pieces that are all under way at once and each below the eager limit (mpi_job.cpp).
constexpr std::int64_t kPieceBytes = 512 * 1024;
// Between hosts: from here on the number of bytes decides, below it the number of steps.
constexpr std::int64_t kRingBytes = 64 * 1024;

// Goes ahead of every point-to-point message: MPI itself tells neither the dtype nor a size beyond int.
struct Header {
  std::int64_t count = 0;
  std::int64_t dtype = 0;
};

int as_int(std::int64_t n) { return static_cast<int>(n); }  // n is one piece: below INT_MAX.

std::byte* element(const Tensor& t, std::int64_t i) { return t.raw() + i * t.item_bytes(); }

class MpiTransport final : public Transport {
 public:
  explicit MpiTransport(MpiTransportOptions options)
      : options_(std::move(options)), place_(ArrivalBoard::place(options_.group, 0)) {
    begin_call();
    // A communicator of our own: messages of other groups and libraries cannot be taken for ours.
    check_mpi(MPI_Comm_dup(options_.ranks, &comm_), "MPI_Comm_dup");
    check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check_mpi(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view name() const override { return "mpi"; }

  void send(const Tensor& t, int to) override { exchange(&t, to, nullptr, MPI_PROC_NULL); }
  void recv(Tensor& t, int from) override { exchange(nullptr, MPI_PROC_NULL, &t, from); }
  void send_recv(const Tensor& sent, int to, Tensor& received, int from) override {
    exchange(&sent, to, &received, from);
  }

  void broadcast(Tensor& t, int root) override {
    begin_call();
    pieces(t, [&](std::int64_t at, std::int64_t n) {
      run("MPI_Bcast", MPI_Bcast, MPI_Ibcast, element(t, at), as_int(n), mpi_type(t.dtype()), root, comm_);
    });
  }

  void all_reduce(Tensor& t, Reduce op) override {
    begin_call();
    if (!options_.one_host) {
      const bool long_enough = t.bytes() >= kRingBytes;
      dist::all_reduce(long_enough ? ring_all_reduce : halving_doubling_all_reduce, *this, t, op);
      return;
    }
    Tensor sum = widened(t);
    pieces(sum, [&](std::int64_t at, std::int64_t n) {
      run("MPI_Allreduce", MPI_Allreduce, MPI_Iallreduce, MPI_IN_PLACE, element(sum, at), as_int(n),
          mpi_type(sum.dtype()), ops_[op], comm_);
    });
    finish(sum, t, op, size_);
  }

  void reduce(Tensor& t, Reduce op, int root) override {
    begin_call();
    Tensor sum = widened(t);
    pieces(sum, [&](std::int64_t at, std::int64_t n) {
      const bool here = rank_ == root;
      run("MPI_Reduce", MPI_Reduce, MPI_Ireduce, here ? MPI_IN_PLACE : element(sum, at),
          here ? element(sum, at) : nullptr, as_int(n), mpi_type(sum.dtype()), ops_[op], root, comm_);
    });
    if (rank_ == root) finish(sum, t, op, size_);
  }

  void reduce_scatter(const Tensor& t, Tensor& out, Reduce op) override {
    begin_call();
    const Tensor wide = widened(t);
    // MPI forbids a receive buffer inside the send buffer, and 16-bit results are rounded at the end anyway.
    Tensor sum = Tensor::empty({out.numel()}, wide.dtype());
    blocks(out.numel(), wide, [&](std::int64_t at, std::int64_t n) {
      const Tensor sent = packed(wide, at, n);
      run("MPI_Reduce_scatter_block", MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block, sent.raw(),
          element(sum, at), as_int(n), mpi_type(wide.dtype()), ops_[op], comm_);
    });
    if (op == Reduce::mean || sum.dtype() != out.dtype())
      finish(sum, out, op, size_);
    else
      copy(out.raw(), sum.raw(), out.bytes());
  }

  void all_gather(const Tensor& t, Tensor& out) override {
    begin_call();
    blocks(t.numel(), t, [&](std::int64_t at, std::int64_t n) {
      Tensor all = landing(out, n);
      // t may be this rank's block of out; MPI wants to be told so.
      const bool in_place = all.raw() == out.raw() && t.raw() == element(out, rank_ * n);
      const MPI_Datatype type = mpi_type(t.dtype());
      run("MPI_Allgather", MPI_Allgather, MPI_Iallgather, in_place ? MPI_IN_PLACE : element(t, at), as_int(n),
          type, all.raw(), as_int(n), type, comm_);
      unpack(all, out, at, n);
    });
  }

  void gather(const Tensor& t, Tensor& out, int root) override {
    begin_call();
    blocks(t.numel(), t, [&](std::int64_t at, std::int64_t n) {
      Tensor all = rank_ == root ? landing(out, n) : Tensor();
      const MPI_Datatype type = mpi_type(t.dtype());
      run("MPI_Gather", MPI_Gather, MPI_Igather, element(t, at), as_int(n), type,
          all.defined() ? all.raw() : nullptr, as_int(n), type, root, comm_);
      if (rank_ == root) unpack(all, out, at, n);
    });
  }

  void scatter(const Tensor& t, Tensor& out, int root) override {
    begin_call();
    blocks(out.numel(), out, [&](std::int64_t at, std::int64_t n) {
      const Tensor sent = rank_ == root ? packed(t, at, n) : Tensor();
      const MPI_Datatype type = mpi_type(out.dtype());
      run("MPI_Scatter", MPI_Scatter, MPI_Iscatter, sent.defined() ? sent.raw() : nullptr, as_int(n), type,
          element(out, at), as_int(n), type, root, comm_);
    });
  }

  void all_to_all(const Tensor& t, Tensor& out) override {
    begin_call();
    blocks(t.numel() / size_, t, [&](std::int64_t at, std::int64_t n) {
      const Tensor sent = packed(t, at, n);
      Tensor all = landing(out, n);
      const MPI_Datatype type = mpi_type(t.dtype());
      run("MPI_Alltoall", MPI_Alltoall, MPI_Ialltoall, sent.raw(), as_int(n), type, all.raw(), as_int(n),
          type, comm_);
      unpack(all, out, at, n);
    });
  }

  void barrier() override {
    begin_call();
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Ibarrier(comm_, &request), "MPI_Ibarrier");
    wait_asleep({&request, 1}, "MPI_Ibarrier");
  }

  // Between hosts it would cost a trip over the wire, and their waits sleep anyway.
  void meet() override {
    if (options_.one_host)
      barrier();
    else
      begin_call();
  }

  // Where a rank waits for late ones if the calls are compared: asleep on one host, too.
  void all_gather_control(const Tensor& t, Tensor& out) override {
    begin_call();
    MPI_Request request = MPI_REQUEST_NULL;
    const int n = as_int(t.bytes());
    check_mpi(MPI_Iallgather(t.raw(), n, MPI_BYTE, out.raw(), n, MPI_BYTE, comm_, &request),
              "MPI_Iallgather");
    wait_asleep({&request, 1}, "MPI_Iallgather");
  }

  void report(const Progress& progress) noexcept override {
    if (options_.board) options_.board->report(progress);
  }

  std::string arrivals() const override {
    const std::string all = options_.board ? options_.board->arrivals(place_) : Transport::arrivals();
    const int peer = waits_for_;
    if (peer < 0) return all;
    const std::string message = str("waiting for rank ", peer, " to send or receive a message");
    return options_.board && options_.board->all_came_to(place_) ? message : str(message, "; ", all);
  }

  void abort(const std::string& reason) noexcept override {
    std::lock_guard lock(mutex_);
    if (reason_.empty()) reason_ = reason;
    *options_.broken = true;
  }

  // Without close(), the communicator stays until MPI ends: freeing one is collective.
  void close() override {
    barrier();
    check_mpi(MPI_Comm_free(&comm_), "MPI_Comm_free");
  }

 private:
  void check_usable() const {
    if (!*options_.broken) return;
    std::lock_guard lock(mutex_);
    throw CommError(reason_.empty() ? "mpi: another group of this process was aborted" : reason_);
  }

  // Every collective counts, so that places mean the same on all ranks.
  void begin_call() {
    check_usable();
    const ArrivalBoard::Place place = ++place_;
    if (options_.board) options_.board->come_to(place);
  }

  // One collective: blocking among ranks of one host, who have met before; asleep otherwise. Both have the same
  // parameters but for the request.
  template <class Blocking, class NonBlocking, class... Parameters>
  void run(const char* name, Blocking blocking, NonBlocking non_blocking, Parameters... parameters) const {
    if (options_.one_host) {
      check_mpi(blocking(parameters...), name);
      return;
    }
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(non_blocking(parameters..., &request), name);
    wait_asleep({&request, 1}, name);
  }

  // Sends, receives, or both at once; nullptr: neither. Everything is under way before anything is waited for. On
  // one host the header is a synchronous message, through which the two ranks meet, asleep, before the bytes move.
  void exchange(const Tensor* sent, int to, Tensor* received, int from) {
    check_usable();
    std::vector<MPI_Request> headers, data;
    const auto added = [](std::vector<MPI_Request>& list) { return &list.emplace_back(MPI_REQUEST_NULL); };
    const auto bytes_in_pieces = [&](const Tensor& t, const auto& body) {
      for_each_chunk(t.bytes(), std::min(kPieceBytes, options_.max_chunk_bytes),
                     [&](std::int64_t at, std::int64_t n) { body(t.raw() + at, as_int(n)); });
    };
    Header mine, theirs;
    if (received != nullptr) {
      check_mpi(MPI_Irecv(&theirs, sizeof theirs, MPI_BYTE, from, kHeaderTag, comm_, added(headers)),
                "MPI_Irecv");
      bytes_in_pieces(*received, [&](std::byte* at, int n) {
        check_mpi(MPI_Irecv(at, n, MPI_BYTE, from, kDataTag, comm_, added(data)), "MPI_Irecv");
      });
    }
    if (sent != nullptr) {
      mine = header_of(*sent);
      const auto send_header = options_.one_host ? MPI_Issend : MPI_Isend;
      check_mpi(send_header(&mine, sizeof mine, MPI_BYTE, to, kHeaderTag, comm_, added(headers)),
                "MPI_Isend");
      bytes_in_pieces(*sent, [&](std::byte* at, int n) {
        check_mpi(MPI_Isend(at, n, MPI_BYTE, to, kDataTag, comm_, added(data)), "MPI_Isend");
      });
    }
    waits_for_ = received != nullptr ? from : to;
    wait_asleep(headers, "MPI_Irecv, MPI_Isend");
    // After a misfit the data are left as they are: the group ends, and nothing moves outside of MPI's calls.
    if (received != nullptr) check_header(theirs, *received, from);
    if (options_.one_host)
      check_mpi(MPI_Waitall(as_int(std::ssize(data)), data.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
    else
      wait_asleep(data, "MPI_Irecv, MPI_Isend");
    waits_for_ = -1;
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
    return std::max<std::int64_t>(1, options_.max_chunk_bytes / item_bytes);
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
  MpiTransportOptions options_;
  std::atomic<ArrivalBoard::Place> place_;  // Of the call that runs. Read by arrivals(), from other threads.
  std::atomic<int> waits_for_ = -1;         // The peer of the exchange that runs.
  mutable std::mutex mutex_;
  std::string reason_;  // Guarded by mutex_.
};

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(MpiTransportOptions options) {
  return std::make_unique<MpiTransport>(std::move(options));
}

}  // namespace brigade::dist
