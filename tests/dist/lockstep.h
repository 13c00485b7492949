// SPDX-License-Identifier: MIT
// tests/dist/lockstep.h - two ranks in one thread, without sleeping: streams that run a task only when they are told
// to, and a wire on which a collective happens at the moment when the test wants it to.
// Read before: core/stream.h, dist/transport.h. Read next: tests/dist/interleaving_test.cpp.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dist/process_group.h"
#include "dist/reduce_buffers.h"

namespace brigade::test {

/// Tasks wait until run_next(), except while `eager`: a ProcessGroup's constructor waits for its first one.
class ManualStream final : public Stream {
 public:
  bool eager = true;
  std::uint64_t mark = 0;  ///< Noted with each task that is submitted.
  std::int64_t submitted = 0;

  void submit(std::function<void()> task) override {
    ++submitted;
    if (eager) return task();
    tasks_.push_back({std::move(task), mark});
  }
  void offer(std::function<void()> task, std::shared_ptr<ManualEvent> done) override {
    submit([task = std::move(task), done = std::move(done)] {
      task();
      done->complete();
    });
  }
  void help(const brigade::Event&) override {}
  brigade::Event record() override {
    const auto event = std::make_shared<ManualEvent>();
    submit([event] { event->complete(); });
    return brigade::Event(event);
  }
  void wait(const brigade::Event&) override { fail("manual stream: nobody else could complete the event"); }
  void synchronize() override { fail("manual stream: nobody else could run the tasks"); }

  bool idle() const { return tasks_.empty(); }
  void run_next() {
    const auto [task, noted] = std::move(tasks_.front());
    tasks_.pop_front();
    running_mark_ = noted;
    task();
  }
  /// The mark that the running task was submitted with.
  std::uint64_t running_mark() const { return running_mark_; }
  /// Forgets what has not run: tasks hold what holds this stream.
  void drop() { tasks_.clear(); }

 private:
  std::deque<std::pair<std::function<void()>, std::uint64_t>> tasks_;
  std::uint64_t running_mark_ = 0;
};

/// Joins two ranks, each of whose tasks makes exactly one collective call (as roll call, buckets and verdict do when
/// GroupOptions::check_calls is off).
///
/// A real collective holds each rank until both have come. Here the first rank's task is run; inside its collective
/// call it runs the second rank's task, whose call does the arithmetic for both. No thread, and nobody can see a result
/// before both ranks have come, or see one rank's result earlier than the other's. (That one rank learns of the end
/// later than the other is covered by when the test lets it look.)
class Wire {
 public:
  struct Call {
    const std::byte* memory = nullptr;
    std::int64_t count = 0;
    std::uint64_t mark = 0;  ///< Of the task: what its stream's mark was at the launch.
  };

  ManualStream& stream(int rank) { return *streams_[static_cast<std::size_t>(rank)]; }
  std::shared_ptr<ManualStream> shared_stream(int rank) { return streams_[static_cast<std::size_t>(rank)]; }
  /// The calls that a rank's tasks have made.
  const std::vector<Call>& calls(int rank) const { return calls_[static_cast<std::size_t>(rank)]; }
  void forget_calls() {
    for (auto& calls : calls_) calls.clear();
  }

  /// Both ranks have queued something.
  bool ready() const { return !streams_[0]->idle() && !streams_[1]->idle(); }
  /// Their next collective happens; `first` arrives first. Throws Error if they come with different ones.
  void run(int first) {
    stream(first).run_next();
    if (waiting_ != nullptr) error_ = "one rank's task made no collective call";
    if (!error_.empty()) fail(error_);
  }

  void all_reduce(int rank, Tensor& t, dist::Reduce op) {
    calls_[static_cast<std::size_t>(rank)].push_back({t.raw(), t.numel(), stream(rank).running_mark()});
    if (waiting_ == nullptr) {
      waiting_ = &t;
      waiting_op_ = op;
      stream(1 - rank).run_next();
      return;
    }
    Tensor& other = *std::exchange(waiting_, nullptr);
    if (other.dtype() != t.dtype() || other.numel() != t.numel() || waiting_op_ != op) {
      error_ = str("the ranks run different collectives: ", other, " and ", t);
      return;
    }
    const std::array<const std::byte*, 2> in{rank == 0 ? t.raw() : other.raw(),
                                             rank == 0 ? other.raw() : t.raw()};
    const std::array<std::byte*, 2> out{t.raw(), other.raw()};
    dist::reduce_buffers(in, out, t.dtype(), t.numel(), op);
  }

 private:
  std::array<std::shared_ptr<ManualStream>, 2> streams_{std::make_shared<ManualStream>(),
                                                        std::make_shared<ManualStream>()};
  std::array<std::vector<Call>, 2> calls_;
  Tensor* waiting_ = nullptr;  // What the rank that came first holds out.
  dist::Reduce waiting_op_ = dist::Reduce::sum;
  std::string error_;
};

/// One rank's end of a Wire, which carries all_reduce only.
class WireTransport final : public dist::Transport {
 public:
  WireTransport(std::shared_ptr<Wire> wire, int rank) : wire_(std::move(wire)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return 2; }
  std::string_view name() const override { return "wire"; }
  void all_reduce(Tensor& t, dist::Reduce op) override { wire_->all_reduce(rank_, t, op); }
  void abort(const std::string&) noexcept override {}
  void close() override {}

  void send(const Tensor&, int) override { refuse("send"); }
  void recv(Tensor&, int) override { refuse("recv"); }
  void send_recv(const Tensor&, int, Tensor&, int) override { refuse("send_recv"); }
  void broadcast(Tensor&, int) override { refuse("broadcast"); }
  void reduce(Tensor&, dist::Reduce, int) override { refuse("reduce"); }
  void reduce_scatter(const Tensor&, Tensor&, dist::Reduce) override { refuse("reduce_scatter"); }
  void all_gather(const Tensor&, Tensor&) override { refuse("all_gather"); }
  void gather(const Tensor&, Tensor&, int) override { refuse("gather"); }
  void scatter(const Tensor&, Tensor&, int) override { refuse("scatter"); }
  void all_to_all(const Tensor&, Tensor&) override { refuse("all_to_all"); }
  void barrier() override { refuse("barrier"); }

 private:
  [[noreturn]] static void refuse(const char* call) { fail(str("wire: does not carry ", call)); }
  std::shared_ptr<Wire> wire_;
  int rank_;
};

}  // namespace brigade::test
