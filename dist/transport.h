// SPDX-License-Identifier: MIT
// dist/transport.h - how bytes move between ranks: one implementation per backend (threads, shm, mpi), and decorators
// (algorithms/, emulated/; nccl/ and staged/, which add the tensors of a device). Blocking and unchecked:
// dist/process_group.h queues, checks and times. Read before: core/tensor.h. Read next: dist/process_group.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "dist/work.h"

namespace brigade::dist {

/// Elementwise operations. Sums and products of integers wrap around; the mean of integers
/// truncates towards zero after the sum; min and max of floats are NaN where any rank has one.
/// bool: sum = or, prod = and, no mean.
enum class Reduce : std::uint8_t { sum, mean, min, max, prod };
inline constexpr std::array kAllReduces{Reduce::sum, Reduce::mean, Reduce::min, Reduce::max, Reduce::prod};
std::string_view name(Reduce op);
inline void append_text(std::string& out, Reduce op) { out += name(op); }

/// What a rank was doing when it last said so. Plain bytes: peers on the same host read it from shared memory.
struct Progress {
  char phase[24] = {};                      ///< "wrapping", "backward", "between steps", …
  std::int64_t step = -1;                   ///< Synchronised backward, from 1; -1: none yet.
  std::int32_t pending = 0, gradients = 0;  ///< Not final yet, of all.
  char first_pending[96] = {};              ///< Name of a parameter.
  std::string text() const;  ///< "backward of step 7, 3 of 62 gradients pending, first \"conv1.weight\""
};

/// "arrived: ranks 0, 2; missing: rank 1 (backward of step 7, …)"; both lists by rank. What backends make of their own
/// records for Transport::arrivals(). Ranks that are `elsewhere` (empty: none) are named as not known.
std::string describe_arrivals(const std::vector<bool>& arrived, const std::vector<Progress>& progress,
                              const std::vector<bool>& elsewhere = {});

/// "rank 1 (process 123) is gone; it was last in backward of step 7, …"
std::string describe_lost(int rank, std::int64_t process, const Progress& progress);

/// A difference that all ranks have found and report alike: nobody waits for bytes, so nobody needs to be interrupted,
/// and the connection stays whole. What is queued behind it does not run.
class AgreedError final : public CommError {
 public:
  using CommError::CommError;
};

/// A wait for peers reached the WaitLimit of its thread.
class TimedOut final : public CommError {
 public:
  TimedOut() : CommError("the time-out has passed") {}
};

/// While it lives, waits of any_thread() transports on this thread end at `deadline`. Work::wait() sets it where it
/// runs calls itself. The communication stream's own thread has none: who waits for it ends the group.
class WaitLimit {
 public:
  explicit WaitLimit(Clock::time_point deadline);
  ~WaitLimit();
  WaitLimit(const WaitLimit&) = delete;
  WaitLimit& operator=(const WaitLimit&) = delete;
  static Clock::time_point deadline();  ///< Of the calling thread; max() without a limit.
  /// Whether the calling thread waits for the call that it runs.
  static bool is_set() { return deadline() != Clock::time_point::max(); }

 private:
  Clock::time_point before_;
};

/// A fixed set of ranks, as seen by one of them.
///
/// Threads  Calls come one at a time, from the one thread of the group's communication stream, or, if any_thread(),
///          from a thread that waits for the call.
/// Order    Every rank makes the same collective calls in the same order.
/// Tensors  Dense, on the CPU or on device(), all of one call on the same; same dtype and numel() on every rank unless
///          said otherwise; any numel(), 0 included. Shapes do not matter, memory order does. 16-bit floats are summed
///          in f32 and rounded once. All ranks get bit-identical results.
/// Devices  A call with tensors of device() is work for the thread's current stream there (core/runtime.h), ordered
///          like any other: it may return before bytes have moved. What a device rounds otherwise: dist/nccl/.
/// Aliases  reduce_scatter's `out` may be exactly this rank's slice of t (which then changes), and all_gather's
///          t exactly this rank's slice of `out`. No other overlap.
/// Errors   CommError when a peer is lost or a peer's message does not fit. TimedOut.
class Transport {
 public:
  virtual ~Transport() = default;  ///< Never communicates.

  virtual int rank() const = 0;  ///< 0 <= rank() < size()
  virtual int size() const = 0;
  virtual std::string_view name() const = 0;  ///< "threads", "mpi", …
  /// Where tensors may lie beside the CPU.
  virtual Device device() const { return {}; }
  /// In words for users, how tensors of device() travel and why so; without one why there is none, if it was asked for.
  virtual std::string choice() const { return no_device_; }
  void set_no_device(std::string why) { no_device_ = std::move(why); }
  /// Why calls for tensors of device() cannot be captured and repeated (core/graph.h), in words; empty: they can.
  virtual std::string why_not_captured() const { return "this transport copies them by the host"; }
  /// What has gone wrong that no call may come to report, because what waits for peers is a device: the group was ended
  /// by a peer, a link broke. From any thread.
  virtual std::optional<std::string> failure() const { return std::nullopt; }
  /// Whether it does not matter which thread calls, and waits heed WaitLimit. False where a call is bound to a thread
  /// or cannot be interrupted, as with MPI.
  virtual bool any_thread() const { return false; }

  // Point to point: what algorithms/ are built from. Messages between a pair keep their order.
  virtual void send(const Tensor& t, int to) = 0;  ///< May block until received.
  virtual void recv(Tensor& t, int from) = 0;      ///< CommError if the message differs in dtype or size.
  /// Both at once, without deadlock in any pattern; `to` and `from` may differ.
  virtual void send_recv(const Tensor& sent, int to, Tensor& received, int from) = 0;

  virtual void broadcast(Tensor& t, int root) = 0;
  virtual void all_reduce(Tensor& t, Reduce op) = 0;
  virtual void reduce(Tensor& t, Reduce op, int root) = 0;  ///< Result on root; elsewhere t is unchanged.
  /// t [size * n] is reduced; `out` [n] gets this rank's slice. t is unchanged.
  virtual void reduce_scatter(const Tensor& t, Tensor& out, Reduce op) = 0;
  /// out [size * n] gets every rank's t [n], in rank order.
  virtual void all_gather(const Tensor& t, Tensor& out) = 0;
  /// all_gather for a few bytes about the calls themselves, which a modelled network does not charge for.
  virtual void all_gather_control(const Tensor& t, Tensor& out) { all_gather(t, out); }
  virtual void gather(const Tensor& t, Tensor& out, int root) = 0;   ///< `out` is used on root only.
  virtual void scatter(const Tensor& t, Tensor& out, int root) = 0;  ///< `t` is used on root only.
  /// out[j * n ..] gets rank j's t[rank * n ..].
  virtual void all_to_all(const Tensor& t, Tensor& out) = 0;
  virtual void barrier() = 0;

  /// Waits, asleep, until all ranks have come to the collective that follows, where that costs next to nothing (ranks
  /// on one host); elsewhere it may return at once. So that the wait for a late rank is not taken for time on the wire.
  virtual void meet() {}

  /// Zeroed memory for tensors that are reduced again and again: between ranks that share memory, what lies in it moves
  /// without a staging copy. Ordinary memory where there is no such thing.
  /// Collective; the same size on all ranks. It may outlive the transport.
  virtual Storage allocate_shared(std::int64_t bytes);

  /// Step `step` of training begins: a modelled network may change with it. Not collective.
  virtual void begin_step(std::int64_t step) { static_cast<void>(step); }

  /// Ends the group for everyone: blocked and later calls of all ranks throw CommError with `reason`, as far
  /// as the backend can reach them. May come from any thread, as may arrivals() and report().
  virtual void abort(const std::string& reason) noexcept = 0;
  /// Leaves word for peers that may come to wait for this rank: arrivals() shows it to them.
  virtual void report(const Progress& progress) noexcept { static_cast<void>(progress); }
  /// Who is at the call that this rank waits in, and what the others are doing:
  /// "arrived: ranks 0, 2; missing: rank 1 (backward of step 7, 3 of 62 gradients pending, first "conv1.weight")".
  virtual std::string arrivals() const { return "which ranks arrived is not known to this backend"; }
  /// Ordered end: all ranks arrive here before any leaves. No call may follow.
  virtual void close() = 0;

 private:
  std::string no_device_;
};

/// Every rank's `text`, in rank order. Collective.
std::vector<std::string> gather_texts(Transport& transport, const std::string& text);

}  // namespace brigade::dist
