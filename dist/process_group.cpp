// SPDX-License-Identifier: MIT
// dist/process_group.cpp - local checks, the queue, the comparison of calls between ranks.
// Read before: dist/process_group.h. Read next: dist/threads/thread_transport.cpp, where bytes move.
#include "dist/process_group.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/graph.h"
#include "core/runtime.h"
#include "dist/call_record.h"
#include "dist/device_watch.h"
#include "dist/work_state.h"

namespace brigade::dist {
namespace {

// The tensor's memory as one dense row: transports and algorithms cut it anywhere.
Tensor flat(const Tensor& t) {
  const std::int64_t begin = t.raw() - t.storage().data();
  return Tensor::over(t.storage().slice(begin, t.bytes()), {t.numel()}, t.dtype());
}

void check_reduce(const char* operation, const Tensor& t, Reduce op) {
  BRIGADE_CHECK(op != Reduce::mean || t.dtype() != DType::boolean, operation,
                ": mean needs numbers; got a bool tensor; use sum (or) or prod (and)");
}

bool overlap(const Tensor& a, const Tensor& b) {
  return a.numel() > 0 && b.numel() > 0 && a.raw() < b.raw() + b.bytes() && b.raw() < a.raw() + a.bytes();
}

// `large` holds a block like `small` for every rank; they may share memory only if `small` is block `own`.
void check_blocks(const char* operation, const char* small_name, const Tensor& small, const char* large_name,
                  const Tensor& large, int size, int own = -1) {
  BRIGADE_CHECK(small.device() == large.device(), operation, ": ", small_name, " and ", large_name,
                " must lie on one device; got ", small.device(), " and ", large.device());
  BRIGADE_CHECK(small.dtype() == large.dtype() && large.numel() == size * small.numel(), operation, ": ",
                large_name, " must hold ", size, " blocks (one a rank) of ", small_name,
                "'s dtype and size; got ", large_name, " ", large, " and ", small_name, " ", small);
  const bool in_place = own >= 0 && small.raw() == large.raw() + own * small.bytes();
  BRIGADE_CHECK(in_place || !overlap(small, large), operation, ": ", small_name, " and ", large_name,
                " must not overlap", own >= 0 ? ", except as this rank's own block" : "");
}

}  // namespace

// One call on the group's device.
struct ProcessGroup::OnDevice {
  Event ready;                  // In the caller's stream: what its tensors wait for.
  std::vector<Storage> memory;  // That the group's stream uses, and the caller's has made.
};

ProcessGroup::ProcessGroup(const Connect& connect, GroupOptions options, std::shared_ptr<Stream> stream)
    : options_(options),
      state_(std::make_shared<GroupState>()),
      stream_(stream ? std::move(stream) : std::shared_ptr<Stream>(make_worker_stream("comm"))) {
  BRIGADE_CHECK(options_.timeout.count() > 0, "process group: timeout must be positive; got ",
                options_.timeout.count(), " ms");
  const auto connected = std::make_shared<ManualEvent>();
  const auto error = std::make_shared<std::exception_ptr>();
  stream_->submit([connect, connected, error, state = state_] {
    try {
      state->transport = connect();
      state->device = state->transport->device();
      if (state->device != Device{})
        state->device_stream = runtime(state->device).make_stream("comm", Priority::high);
    } catch (...) {
      *error = std::current_exception();
    }
    connected->complete();
  });
  if (!connected->wait_until(Clock::now() + options_.timeout))
    throw CommError(str("process group: the ranks did not connect within ", options_.timeout.count(), " ms"));
  if (*error) std::rethrow_exception(*error);
  const Transport& transport = *state_->transport;
  rank_ = transport.rank();
  size_ = transport.size();
  backend_ = transport.name();
  device_ = transport.device();
  state_->stream = stream_;
  state_->timeout = options_.timeout;
  state_->who = str("rank ", rank_, "/", size_);
  if (state_->device != Device{}) watch_ = std::make_shared<DeviceWatch>(state_);
}

ProcessGroup::~ProcessGroup() {
  if (watch_) watch_->stop();
  if (!state_->who.empty()) abort(str(state_->who, " left without closing the group"));
}

void ProcessGroup::abort(const std::string& reason) noexcept { state_->abort(reason); }

void ProcessGroup::submit(std::function<void()> task, std::shared_ptr<ManualEvent> done) {
  if (state_->transport->any_thread()) return stream_->offer(std::move(task), std::move(done));
  stream_->submit([task = std::move(task), done = std::move(done)] {
    task();
    done->complete();
  });
}

std::string ProcessGroup::device_choice() const { return state_->transport->choice(); }
std::string ProcessGroup::why_not_captured() const { return state_->transport->why_not_captured(); }

std::shared_ptr<ProcessGroup::OnDevice> ProcessGroup::on_device(const Tensor& t, const Tensor& other) const {
  if (!t.defined() || t.device() == Device{}) return nullptr;
  auto call = std::make_shared<OnDevice>();
  call->ready = runtime(t.device()).current_stream().record();
  call->memory.push_back(t.storage());
  if (other.defined()) call->memory.push_back(other.storage());
  return call;
}

// One call on the communication stream. The closure holds everything it uses: with MPI the group may be gone
// while a call is stuck.
Work ProcessGroup::enqueue(std::string what, Run run, Run meet, RunIf condition,
                           std::shared_ptr<OnDevice> device) {
  BRIGADE_CHECK(!state_->closed(), what, ": the group is closed");
  auto work = std::make_shared<Work::State>();
  work->group = state_;
  work->what = std::move(what);
  work->times.launch = Clock::now();
  work->on_device = device != nullptr;
  work->captured = device != nullptr && is_capturing(state_->device);
  const auto call = [work, run = std::move(run), meet = std::move(meet), condition,
                     device = std::move(device), watch = watch_] {
    GroupState& group = *work->group;
    work->times.start = Clock::now();
    std::optional<StreamScope> scope;  // What the call enqueues goes to the group's stream.
    try {
      if (device) {
        scope.emplace(group.device, *group.device_stream);
        group.device_stream->wait(device->ready);
        for (const Storage& memory : device->memory)
          runtime(group.device).note_use(memory.data(), *group.device_stream);
      }
      const auto failure = group.failure();
      if (failure && condition == RunIf::healthy)
        throw CommError(str("not run; an earlier failure: ", *failure));
      if (meet) {
        meet(*group.transport);
        work->times.start = Clock::now();  // Waiting for a late rank is no communication.
      }
      if (device) work->began = group.device_stream->record();
      run(*group.transport);
      if (device) work->left = group.device_stream->record();
    } catch (const AgreedError& e) {
      work->error = str(group.who, ": ", work->what, ": ", e.what());
      group.fail(*work->error);
    } catch (const TimedOut&) {  // In a wait that ran this call.
      work->error = group.give_up(work->what);
    } catch (const std::exception& e) {
      const std::string reason = str(group.who, ": ", work->what, ": ", e.what());
      work->error = reason;
      // Peers may be waiting for bytes that will never come now. After the first failure this does nothing.
      if (!group.failure()) group.abort(reason);
    }
    work->times.end = Clock::now();
    if (device && !work->captured && !work->error) watch->add(work);
  };
  submit(call, work->finished);
  return Work(work);
}

CallRecord ProcessGroup::next_record(const char* operation, const Tensor& shown, Reduce op, int root) {
  CallRecord record;
  record.sequence = next_sequence_++;
  std::strncpy(record.operation, operation, sizeof record.operation - 1);
  if (shown.defined()) {
    record.dtype = shown.dtype();
    record.count = shown.numel();
    record.place = shown.device().type;
  }
  record.op = op;
  record.root = root;
  return record;
}

// Before the call the ranks compare it, or at least wait for each other; before that comes what one rank prepares.
Work ProcessGroup::numbered(const CallRecord& record, const std::string& label, Run run,
                            std::function<void()> prepare, bool agreed, std::shared_ptr<OnDevice> device) {
  const bool compares = options_.check_calls && !agreed;
  const auto meet = [record, prepare = std::move(prepare), compares,
                     alone = size_ == 1](Transport& transport) {
    if (prepare) prepare();
    if (alone) return;
    if (compares)
      compare_calls(transport, record);
    else
      transport.meet();
  };
  return enqueue(str(record.text(), ", sequence ", record.sequence, label.empty() ? "" : ", ", label),
                 std::move(run), meet, RunIf::healthy, std::move(device));
}

Work ProcessGroup::collective(const char* operation, const Tensor& shown, Reduce op, int root,
                              std::string label, Run run, const Tensor& other) {
  return numbered(next_record(operation, shown, op, root), label, std::move(run), {}, false,
                  on_device(shown, other));
}

Work ProcessGroup::run(CustomCall call, std::string label) {
  if (call.tensor.defined()) check_tensor(call.operation, call.tensor);
  return numbered(next_record(call.operation, call.tensor, call.op, -1), label, std::move(call.run),
                  std::move(call.prepare), call.agreed, on_device(call.tensor));
}

void ProcessGroup::report(const Progress& progress) noexcept {
  reported_step_ = progress.step;
  state_->transport->report(progress);
}

void ProcessGroup::enter(std::string_view phase) noexcept {
  Progress progress{.step = reported_step_};
  phase.copy(progress.phase, sizeof progress.phase - 1);
  report(progress);
}

// Refusing is better than reducing a dense copy, which would silently leave the caller's tensor as it was.
void ProcessGroup::check_tensor(const char* operation, const Tensor& t) const {
  BRIGADE_CHECK(t.defined(), operation, ": needs a tensor; got an undefined one");
  BRIGADE_CHECK(t.device() == Device{} || t.device() == device(), operation,
                ": needs memory of the group's device, ", device(), device() == Device{} ? "" : " or cpu",
                "; got ", t.device());
  BRIGADE_CHECK(t.is_contiguous() || (t.dims() == 4 && t.is_contiguous(MemoryFormat::channels_last)),
                operation, ": needs a contiguous tensor, because the result is written in place; got ", t,
                " with strides ", t.strides(), "; make a contiguous copy, and copy the result back");
}

void ProcessGroup::check_rank(const char* operation, const char* what, int rank) const {
  BRIGADE_CHECK(rank >= 0 && rank < size_, operation, ": ", what, " must be a rank of the group; got ", what,
                " ", rank, ", group size ", size_);
}

void ProcessGroup::begin_step(std::int64_t step) {
  submit([state = state_, step] { state->transport->begin_step(step); }, std::make_shared<ManualEvent>());
}

Work ProcessGroup::broadcast(Tensor t, int root, std::string label) {
  check_rank("broadcast", "root", root);
  check_tensor("broadcast", t);
  t.bump_version();
  return collective("broadcast", t, Reduce::sum, root, std::move(label),
                    [t = flat(t), root](Transport& transport) mutable { transport.broadcast(t, root); });
}

Work ProcessGroup::all_reduce(Tensor t, Reduce op, std::string label) {
  check_tensor("all_reduce", t);
  check_reduce("all_reduce", t, op);
  t.bump_version();
  return collective("all_reduce", t, op, -1, std::move(label),
                    [t = flat(t), op, alone = size_ == 1](Transport& transport) mutable {
                      // The mean over one rank is the tensor itself.
                      if (!alone) transport.all_reduce(t, op);
                    });
}

Work ProcessGroup::reduce(Tensor t, Reduce op, int root, std::string label) {
  check_rank("reduce", "root", root);
  check_tensor("reduce", t);
  check_reduce("reduce", t, op);
  if (rank_ == root) t.bump_version();
  return collective("reduce", t, op, root, std::move(label),
                    [t = flat(t), op, root](Transport& transport) mutable { transport.reduce(t, op, root); });
}

Work ProcessGroup::reduce_scatter(Tensor t, Tensor out, Reduce op, std::string label) {
  check_tensor("reduce_scatter", t);
  check_tensor("reduce_scatter", out);
  check_reduce("reduce_scatter", t, op);
  check_blocks("reduce_scatter", "out", out, "t", t, size_, rank_);
  out.bump_version();
  return collective(
      "reduce_scatter", t, op, -1, std::move(label),
      [t = flat(t), out = flat(out), op](Transport& transport) mutable {
        transport.reduce_scatter(t, out, op);
      },
      out);
}

Work ProcessGroup::all_gather(Tensor t, Tensor out, std::string label) {
  check_tensor("all_gather", t);
  check_tensor("all_gather", out);
  check_blocks("all_gather", "t", t, "out", out, size_, rank_);
  out.bump_version();
  return collective(
      "all_gather", t, Reduce::sum, -1, std::move(label),
      [t = flat(t), out = flat(out)](Transport& transport) mutable { transport.all_gather(t, out); }, out);
}

Work ProcessGroup::gather(Tensor t, Tensor out, int root, std::string label) {
  check_rank("gather", "root", root);
  check_tensor("gather", t);
  if (rank_ == root) {
    check_tensor("gather", out);
    check_blocks("gather", "t", t, "out", out, size_);
    out.bump_version();
    out = flat(out);
  }
  return collective(
      "gather", t, Reduce::sum, root, std::move(label),
      [t = flat(t), out, root](Transport& transport) mutable { transport.gather(t, out, root); },
      rank_ == root ? out : Tensor());
}

Work ProcessGroup::scatter(Tensor t, Tensor out, int root, std::string label) {
  check_rank("scatter", "root", root);
  check_tensor("scatter", out);
  if (rank_ == root) {
    check_tensor("scatter", t);
    check_blocks("scatter", "out", out, "t", t, size_);
    t = flat(t);
  }
  out.bump_version();
  return collective(
      "scatter", out, Reduce::sum, root, std::move(label),
      [t, out = flat(out), root](Transport& transport) mutable { transport.scatter(t, out, root); },
      rank_ == root ? t : Tensor());
}

Work ProcessGroup::all_to_all(Tensor t, Tensor out, std::string label) {
  check_tensor("all_to_all", t);
  check_tensor("all_to_all", out);
  BRIGADE_CHECK(t.dtype() == out.dtype() && t.numel() == out.numel() && t.numel() % size_ == 0,
                "all_to_all: t and out must have one dtype and size, a multiple of the group's ", size_,
                "; got t ", t, " and out ", out);
  BRIGADE_CHECK(t.device() == out.device(), "all_to_all: t and out must lie on one device; got ", t.device(),
                " and ", out.device());
  BRIGADE_CHECK(!overlap(t, out), "all_to_all: t and out must not overlap");
  out.bump_version();
  return collective(
      "all_to_all", t, Reduce::sum, -1, std::move(label),
      [t = flat(t), out = flat(out)](Transport& transport) mutable { transport.all_to_all(t, out); }, out);
}

Work ProcessGroup::barrier(std::string label) {
  return collective("barrier", Tensor(), Reduce::sum, -1, std::move(label),
                    [](Transport& transport) { transport.barrier(); });
}

Work ProcessGroup::send(Tensor t, int to) {
  check_rank("send", "to", to);
  BRIGADE_CHECK(to != rank_, "send: to must be another rank; got this rank, ", to);
  check_tensor("send", t);
  return enqueue(
      str("send ", t.dtype(), " x ", t.numel(), " to rank ", to),
      [t = flat(t), to](Transport& transport) { transport.send(t, to); }, nullptr, RunIf::healthy,
      on_device(t));
}

Work ProcessGroup::recv(Tensor t, int from) {
  check_rank("recv", "from", from);
  BRIGADE_CHECK(from != rank_, "recv: from must be another rank; got this rank, ", from);
  check_tensor("recv", t);
  t.bump_version();
  return enqueue(
      str("recv ", t.dtype(), " x ", t.numel(), " from rank ", from),
      [t = flat(t), from](Transport& transport) mutable { transport.recv(t, from); }, nullptr, RunIf::healthy,
      on_device(t));
}

Storage ProcessGroup::allocate_shared(std::int64_t bytes) {
  BRIGADE_CHECK(bytes >= 0, "allocate_shared: bytes must not be negative; got ", bytes);
  Storage storage;
  CallRecord record = next_record("allocate_shared", Tensor(), Reduce::sum, -1);
  record.dtype = DType::u8;
  record.count = bytes;
  numbered(record, "", [&storage, bytes](Transport& transport) {
    storage = transport.allocate_shared(bytes);
  }).wait();
  return storage;
}

std::vector<std::string> ProcessGroup::all_gather_text(const std::string& text) {
  std::vector<std::string> texts;
  run({.operation = "all_gather_text",
       .run = [&](Transport& transport) { texts = gather_texts(transport, text); }})
      .wait();
  return texts;
}

void ProcessGroup::close() {
  CallRecord record{.sequence = next_sequence_++, .operation = "close"};
  // After a mismatch, which all ranks know, they skip the comparison and leave together. Whether there was
  // one is known only when the calls before have run: asked on the stream.
  const auto run = [record, group = state_.get(), check = options_.check_calls](Transport& transport) {
    if (check && !group->failure()) compare_calls(transport, record);
    // What is enqueued on a device is over first: the watch ends the group if it hangs.
    if (group->device_stream) group->device_stream->record().wait();
    transport.close();
  };
  enqueue(str("close, sequence ", record.sequence), run, nullptr, RunIf::always).wait();
  state_->mark_closed();
}

}  // namespace brigade::dist
