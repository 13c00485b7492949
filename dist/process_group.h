// SPDX-License-Identifier: MIT
// dist/process_group.h - the only door through which ranks talk to each other: checks, a queue, and time
// stamps in front of a Transport. Read before: dist/transport.h, dist/work.h. Read next: dist/algorithms/ring.cpp.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dist/call_record.h"
#include "dist/transport.h"

namespace brigade::dist {

struct GroupOptions {
  std::chrono::milliseconds timeout{120'000};  ///< How long Work::wait() waits for peers.
  /// Before each collective the ranks compare {sequence, operation, dtype, count, root}; a mismatch becomes
  /// the same CommError on all of them, naming both ranks' calls, instead of a hang or garbage.
  bool check_calls = true;
};

/// A collective of the caller's own making, run as one call of the group.
struct CustomCall {
  const char* operation = "";  ///< Its name, compared between ranks like "all_reduce".
  /// What it is about; dtype and count are compared. Undefined: none. If it lies on a device, `prepare` and `run` are
  /// called under the group's stream there.
  Tensor tensor = {};
  Reduce op = Reduce::sum;  ///< Shown if the name speaks of a reduction.
  /// On the communication stream, before the ranks meet: work of this rank alone, which is no time on the wire.
  std::function<void()> prepare = {};
  std::function<void(Transport&)> run;
  /// The ranks have compared already what they are about to call (dist/roll_call.h): no comparison for this one.
  bool agreed = false;
};

struct GroupState;
class DeviceWatch;

/// A fixed set of ranks.
///
/// Order    Every rank calls the same collectives in the same order. They run one after another, in that
///          order, on the group's communication stream; the caller goes on at once and waits on the Work. A wait for
///          calls that have not begun runs them itself where the transport lets any thread call.
/// Buffers  Contiguous (or channels_last, alike on all ranks), on the CPU or on device(), all of one call on the same;
///          untouched from the call until the Work is done, which keeps them alive. Results are written in place.
///          Aliases: Transport.
/// Device   A call with tensors of device() begins behind what the caller's current stream has been given until then,
///          on a stream of its own with high priority, and Work::wait() makes the caller's current stream wait for it:
///          the host waits for no device. CPU tensors travel beside them, over the host.
/// Errors   Error for a local mistake, before any byte is sent. CommError (from Work::wait) when a peer is
///          lost, calls something else, or the time-out passes. After one failed call all later ones fail with
///          its reason. A mismatch found by check_calls leaves the connection whole: close() still works.
/// Threads  One thread calls; abort() may come from any.
/// Label    Appears in errors and in the ledger: "bucket 2 (layer4.1.conv2.weight …)".
class ProcessGroup {
 public:
  using Connect = std::function<std::unique_ptr<Transport>()>;
  /// Runs `connect` on the communication stream: a new one, or `stream` (for MPI, whose one thread several
  /// groups share). Blocks; throws what connect throws, and CommError if it does not end within the time-out.
  explicit ProcessGroup(const Connect& connect, GroupOptions options = {},
                        std::shared_ptr<Stream> stream = nullptr);
  ~ProcessGroup();  ///< Never communicates: see close(). Aborts if the group was not closed.
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const { return rank_; }  ///< 0 <= rank() < size()
  int size() const { return size_; }  ///< A group of one is legal: collectives are the identity.
  std::string_view backend() const { return backend_; }
  /// Where tensors may lie beside the CPU; the CPU if nowhere.
  Device device() const { return device_; }
  /// Transport::choice().
  std::string device_choice() const;
  /// Transport::why_not_captured().
  std::string why_not_captured() const;
  const GroupOptions& options() const { return options_; }

  [[nodiscard]] Work broadcast(Tensor t, int root, std::string label = {});
  /// Replaces t (any shape) by its elementwise reduction over ranks. A ring sends 2 (p-1)/p * bytes per rank.
  [[nodiscard]] Work all_reduce(Tensor t, Reduce op, std::string label = {});
  [[nodiscard]] Work reduce(Tensor t, Reduce op, int root, std::string label = {});
  [[nodiscard]] Work reduce_scatter(Tensor t, Tensor out, Reduce op, std::string label = {});
  [[nodiscard]] Work all_gather(Tensor t, Tensor out, std::string label = {});
  [[nodiscard]] Work gather(Tensor t, Tensor out, int root, std::string label = {});
  [[nodiscard]] Work scatter(Tensor t, Tensor out, int root, std::string label = {});
  [[nodiscard]] Work all_to_all(Tensor t, Tensor out, std::string label = {});
  [[nodiscard]] Work barrier(std::string label = {});
  /// Ordered and numbered like the others. `call.run` may make any number of calls on the transport, the same on all
  /// ranks; it keeps alive what it uses. An exception from it ends the group.
  [[nodiscard]] Work run(CustomCall call, std::string label = {});
  /// Not collective, not numbered.
  [[nodiscard]] Work send(Tensor t, int to);
  [[nodiscard]] Work recv(Tensor t, int from);

  /// Memory for tensors that are reduced again and again, like gradients (see Transport). Ordered and numbered like a
  /// collective. Blocks.
  Storage allocate_shared(std::int64_t bytes);

  /// Tells the transport, in order with the collectives, that step `step` begins (see Transport::begin_step).
  void begin_step(std::int64_t step);

  /// Every rank's `text`, in rank order. Blocks. For start-up checks, not for the hot path.
  std::vector<std::string> all_gather_text(const std::string& text);

  /// Leaves word for peers that may come to wait for this rank. From any thread.
  void report(const Progress& progress) noexcept;
  /// The same for what is no part of a step, "evaluation" for example: the step is the one reported last.
  void enter(std::string_view phase) noexcept;

  /// Ends the group in order on all ranks. Blocks; throws CommError. No call may follow.
  void close();
  /// Ends the group for everyone at once, from any thread.
  void abort(const std::string& reason) noexcept;

 private:
  using Run = std::function<void(Transport&)>;
  enum class RunIf { healthy, always };
  CallRecord next_record(const char* operation, const Tensor& shown, Reduce op, int root);
  Work collective(const char* operation, const Tensor& shown, Reduce op, int root, std::string label, Run run,
                  const Tensor& other = {});
  /// The caller's side of a call on the group's device, and what its memory needs there; nothing for CPU tensors.
  struct OnDevice;
  std::shared_ptr<OnDevice> on_device(const Tensor& t, const Tensor& other = {}) const;
  /// Queues `task` on the communication stream; where the transport allows it, a thread that waits may run it.
  /// `done` is completed behind it.
  void submit(std::function<void()> task, std::shared_ptr<ManualEvent> done);
  /// `meet` runs before `run`; the call's time on the wire starts between them.
  Work enqueue(std::string what, Run run, Run meet = nullptr, RunIf condition = RunIf::healthy,
               std::shared_ptr<OnDevice> device = nullptr);
  Work numbered(const CallRecord& record, const std::string& label, Run run,
                std::function<void()> prepare = {}, bool agreed = false,
                std::shared_ptr<OnDevice> device = nullptr);
  void check_tensor(const char* operation, const Tensor& t) const;
  void check_rank(const char* operation, const char* what, int rank) const;

  GroupOptions options_;
  std::shared_ptr<GroupState> state_;  // Shared with queued calls and with Work.
  std::shared_ptr<Stream> stream_;
  std::shared_ptr<DeviceWatch> watch_;  // Null without a device. Shared with queued calls.
  int rank_ = 0, size_ = 1;
  std::string backend_;
  Device device_;
  std::int64_t next_sequence_ = 0;
  std::atomic<std::int64_t> reported_step_ = -1;
};

}  // namespace brigade::dist
