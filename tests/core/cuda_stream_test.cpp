// SPDX-License-Identifier: MIT
// tests/core/cuda_stream_test.cpp - order, events, times and failures of CUDA's streams, as tests/core/stream_test.cpp
// asks of the CPU's. What holds a stream up is a host function that the device calls and that waits for a gate.
#include <thread>

#include "core/cuda/stream_cuda.h"
#include "tests/core/cuda_gate.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace std::chrono_literals;
using test::Gate;
using test::test_device;

namespace {

std::unique_ptr<Stream> make_stream(Priority priority = Priority::normal) {
  return runtime(test_device()).make_stream("test", priority);
}

Tensor filled(std::int64_t count, float value) {
  return test::from(std::vector<float>(static_cast<std::size_t>(count), value), {count});
}

/// to = from, enqueued on `stream`.
void copy(Stream& stream, const Tensor& to, const Tensor& from) {
  const StreamScope scope(test_device(), stream);
  runtime(test_device()).copy_on_device(to.raw(), from.raw(), from.bytes());
}

}  // namespace

TEST_CASE("an event is done when the device is there and not sooner", "[core][.cuda]") {
  const auto stream = make_stream();
  Gate gate;
  REQUIRE(stream->record().wait_until(Clock::now() + 10s));
  gate.hold(*stream);
  const Event event = stream->record();
  REQUIRE_FALSE(event.done());
  REQUIRE_FALSE(event.wait_until(Clock::now() + 5ms));
  REQUIRE_FALSE(event.time().has_value());
  gate.open();
  event.wait();
  REQUIRE(event.done());
}

TEST_CASE("a stream that waits for another's event works behind it, and the caller waits for neither",
          "[core][.cuda]") {
  const auto producer = make_stream(), consumer = make_stream(Priority::high);
  const Tensor source = filled(1000, 5), between = filled(1000, 1), result = filled(1000, 2);
  runtime(test_device()).current_stream().synchronize();
  Gate gate;
  gate.hold(*producer);
  copy(*producer, between, source);
  consumer->wait(producer->record());
  copy(*consumer, result, between);
  const Event behind = consumer->record();
  REQUIRE_FALSE(behind.done());
  gate.open();
  consumer->synchronize();
  REQUIRE(result.to_vector<float>() == std::vector<float>(1000, 5));
}

TEST_CASE("an event may be recorded again for others while a stream still waits for its first use",
          "[core][.cuda]") {
  const auto producer = make_stream(), consumer = make_stream();
  Gate gate;
  gate.hold(*producer);
  consumer->wait(producer->record());  // The event is given back to the pool here …
  const auto other = make_stream();
  const Event reused = other->record();  // … and taken from it here.
  reused.wait();
  const Event behind = consumer->record();
  REQUIRE_FALSE(behind.done());
  gate.open();
  behind.wait();
}

TEST_CASE("times of events are the host's and rise along a stream", "[core][.cuda]") {
  const auto stream = make_stream();
  // What tying the two clocks together may be wrong by, on a busy machine.
  constexpr auto kError = 20ms;
  const auto before = Clock::now();
  const Event first = stream->record();
  first.wait();  // Or a busy machine's device is there only when the gate opens.
  {
    Gate gate;
    gate.hold(*stream);
    std::this_thread::sleep_for(30ms);
  }
  const Event last = stream->record();
  last.wait();
  const auto after = Clock::now();
  REQUIRE(*first.time() >= before - kError);
  REQUIRE(*last.time() <= after + kError);
  REQUIRE(*last.time() - *first.time() >= 25ms);
}

TEST_CASE("a task runs at once with its stream as the current one", "[core][.cuda]") {
  Runtime& device = runtime(test_device());
  const auto stream = make_stream();
  Stream& outside = device.current_stream();
  Stream* inside = nullptr;
  stream->submit([&] { inside = &device.current_stream(); });
  REQUIRE(inside == stream.get());
  REQUIRE(&device.current_stream() == &outside);
}

TEST_CASE("synchronize of a device's stream rethrows the first failure once", "[core][.cuda][error]") {
  const auto stream = make_stream();
  bool later = false;
  stream->submit([] { fail("first"); });
  stream->submit([] { throw std::logic_error("second"); });
  stream->submit([&] { later = true; });
  REQUIRE_THROWS_WITH(stream->synchronize(), "first");
  REQUIRE(later);
  REQUIRE_NOTHROW(stream->synchronize());
}

TEST_CASE("an offered task is done when the device is, not when the host is", "[core][.cuda]") {
  const auto stream = make_stream();
  Gate gate;
  const auto done = std::make_shared<ManualEvent>(), failed = std::make_shared<ManualEvent>();
  stream->offer([&] { gate.hold(*stream); }, done);
  stream->offer([] { fail("offered"); }, failed);
  REQUIRE_FALSE(done->done());
  gate.open();
  REQUIRE(done->wait_until(Clock::now() + 10s));
  REQUIRE(failed->wait_until(Clock::now() + 10s));
  REQUIRE_THROWS_WITH(stream->synchronize(), "offered");
}

TEST_CASE("each thread has a current stream of its own, and threads that end leave theirs to later ones",
          "[core][.cuda]") {
  Runtime& device = runtime(test_device());
  std::vector<cudaStream_t> seen;
  for (int i = 0; i < 3; ++i) std::thread([&] { seen.push_back(current_cuda_stream(test_device())); }).join();
  REQUIRE(seen[0] != native(device.current_stream()));
  REQUIRE(seen[1] == seen[0]);
  REQUIRE(seen[2] == seen[0]);
}

TEST_CASE("a stream of another kind is refused", "[core][.cuda][error]") {
  const auto stream = make_caller_stream();
  REQUIRE_THROWS_WITH(native(*stream), ContainsSubstring("needs a stream of a CUDA device"));
}
