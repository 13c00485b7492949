// SPDX-License-Identifier: MIT
// core/fault_point.cpp - which clauses a visit fits, and what they do to it.
#include "core/fault_point.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "core/check.h"
#include "core/graph.h"
#include "core/rng.h"
#include "core/tensor.h"

namespace brigade {
namespace {

struct Armed {
  FaultSpec spec;
  std::uint64_t seed = 0;
  std::function<void(const std::string&)> tell;
  std::deque<std::atomic<std::int64_t>> visits;  // That fit, by clause.
};

// Kept while visits may look at it, so that a visit takes no lock for longer than a copy.
constinit std::mutex mutex;
constinit std::shared_ptr<Armed> present;  // Guarded by mutex.
constinit std::atomic<int> process_rank{-1};
thread_local int thread_rank = -1;
thread_local std::int64_t thread_step = -1;

int rank_here() { return thread_rank >= 0 ? thread_rank : process_rank.load(); }

// A clause that a visit fulfils, and random words that belong to it alone.
struct Hit {
  const FaultClause* clause = nullptr;
  std::array<std::uint32_t, 4> random{};
};

// The first clause that wants something to happen now. All that fit count the visit.
Hit look_up(Armed& armed, FaultAt at, std::string_view label) {
  Hit hit;
  const int rank = rank_here();
  for (std::size_t i = 0; i < armed.spec.clauses.size(); ++i) {
    const FaultClause& clause = armed.spec.clauses[i];
    if (clause.at != at || (clause.rank && *clause.rank != rank) ||
        (clause.step && *clause.step != thread_step) || (!clause.label.empty() && clause.label != label))
      continue;
    const std::int64_t visit = ++armed.visits[i];
    // Ranks that share a seed must not all fail alike.
    const std::uint64_t stream = static_cast<std::uint64_t>(rank + 1) << 32 | i;
    const auto random = philox(armed.seed, stream, static_cast<std::uint64_t>(visit));
    const bool now = clause.hit > 0 ? visit == clause.hit : uniform01(random[0]) < clause.p;
    if (!now || hit.clause != nullptr) continue;
    hit = {&clause, random};
    if (armed.tell) {
      armed.tell(str("fault: ", name(at), label.empty() ? "" : str(" (", label, ")"), ", visit ", visit,
                     rank >= 0 ? str(", rank ", rank) : "",
                     thread_step > 0 ? str(", step ", thread_step) : "", ": ", name(clause.action)));
    }
  }
  return hit;
}

std::shared_ptr<Armed> armed_now() {
  const std::lock_guard lock(mutex);
  return present;
}

// What can happen anywhere.
void act(const FaultClause& clause, FaultAt at, std::string_view label) {
  switch (clause.action) {
    case FaultAction::throw_error:
      fail(
          str("fault point ", name(at), label.empty() ? "" : str(" (", label, ")"), ": thrown as asked for"));
    case FaultAction::delay:
      std::this_thread::sleep_for(clause.delay);
      return;
    case FaultAction::hang:
      while (true) pause();
    case FaultAction::exit:
      ::_exit(clause.exit_code);
    case FaultAction::kill:
      ::kill(getpid(), SIGKILL);
      return;
    case FaultAction::stop:
      ::kill(getpid(), SIGSTOP);
      return;
    default:
      return;
  }
}

void flip_bit(std::span<std::byte> bytes, const std::array<std::uint32_t, 4>& random) {
  if (bytes.empty()) return;
  const std::uint64_t bit = (std::uint64_t{random[1]} << 32 | random[2]) % (bytes.size() * 8);
  bytes[bit / 8] ^= std::byte{1} << (bit % 8);
}

void make_nan(const Tensor& values, const std::array<std::uint32_t, 4>& random) {
  const auto index = static_cast<std::int64_t>(random[1]) % values.numel();
  if (values.dtype() == DType::f32)
    values.data<float>()[index] = std::numeric_limits<float>::quiet_NaN();
  else if (values.dtype() == DType::f64)
    values.data<double>()[index] = std::numeric_limits<double>::quiet_NaN();
  else  // All exponent bits of a 16-bit float, and a bit of its fraction.
    reinterpret_cast<std::uint16_t*>(values.raw())[index] = 0x7fff;
}

// A step that a device repeats as it was does not come by again: the fault would be asked for and never happen.
void refuse_in_capture(const Armed& armed, FaultAt at) {
  for (const FaultClause& clause : armed.spec.clauses)
    if (clause.at == at && (!clause.rank || *clause.rank == rank_here()))
      fail(str("fault: ", name(at), " lies inside a captured step; run without --cuda-graph"));
}

}  // namespace

namespace fault_detail {

void visit(FaultAt at, std::string_view label) {
  const auto armed = armed_now();
  if (!armed) return;
  if (const Hit hit = look_up(*armed, at, label); hit.clause != nullptr) act(*hit.clause, at, label);
}

void visit(FaultAt at, const Tensor& values, std::string_view label) {
  const auto armed = armed_now();
  if (!armed) return;
  if (values.defined() && values.device() != Device{} && is_capturing(values.device()))
    refuse_in_capture(*armed, at);
  const Hit hit = look_up(*armed, at, label);
  if (hit.clause == nullptr) return;
  act(*hit.clause, at, label);
  if (!values.defined() || values.numel() == 0 || !is_floating(values.dtype())) return;
  const Tensor here = values.to({});  // A copy, if they are a device's.
  if (hit.clause->action == FaultAction::nan)
    make_nan(here, hit.random);
  else if (hit.clause->action == FaultAction::flip_bit)
    flip_bit({here.raw(), static_cast<std::size_t>(here.bytes())}, hit.random);
  if (values.device() != Device{})
    runtime(values.device()).copy_from_host(values.raw(), here.raw(), here.bytes());
}

}  // namespace fault_detail

IoFault io_fault(FaultAt at, std::string_view label, std::span<std::byte> bytes) {
  const auto armed = faults_armed() ? armed_now() : nullptr;
  const Hit hit = armed ? look_up(*armed, at, label) : Hit{};
  if (hit.clause == nullptr) return {.bytes = bytes.size()};
  act(*hit.clause, at, label);
  switch (hit.clause->action) {
    case FaultAction::enospc:
      return {.error = ENOSPC};
    case FaultAction::eio:
      return {.error = EIO};
    case FaultAction::
        short_write:  // Not none of them: that is no progress, and no writer may take it for one.
      return {.bytes = bytes.size() < 2 ? bytes.size() : 1 + hit.random[1] % (bytes.size() - 1)};
    case FaultAction::flip_bit:
      flip_bit(bytes, hit.random);
      break;
    default:
      break;
  }
  return {.bytes = bytes.size()};
}

void set_fault_rank(int rank, FaultThreads threads) {
  if (threads == FaultThreads::all)
    process_rank = rank;
  else
    thread_rank = rank;
}

void set_fault_step(std::int64_t step) { thread_step = step; }

std::uint64_t arm_faults(std::string_view specification, std::function<void(const std::string&)> tell) {
  BRIGADE_CHECK(kFaultPoints,
                "BRIGADE_FAULT: this build has no fault points; configure with "
                "-DBRIGADE_FAULT_POINTS=ON, or unset the variable");
  auto armed = std::make_shared<Armed>();
  armed->spec = parse_fault_spec(specification);
  armed->seed = armed->spec.seed ? *armed->spec.seed : std::random_device{}();
  armed->tell = std::move(tell);
  for (std::size_t i = 0; i < armed->spec.clauses.size(); ++i) armed->visits.emplace_back(0);
  const std::uint64_t seed = armed->seed;
  const std::lock_guard lock(mutex);
  present = std::move(armed);
  fault_detail::any_armed = true;
  return seed;
}

void disarm_faults() {
  const std::lock_guard lock(mutex);
  fault_detail::any_armed = false;
  present.reset();
}

}  // namespace brigade
