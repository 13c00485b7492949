// SPDX-License-Identifier: MIT
// tests/core/stream_test.cpp - order, events and failures of the CPU's streams.
#include "core/stream.h"

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/check.h"
#include "core/parallel.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace std::chrono_literals;

namespace {

/// A gate that holds a stream until the test opens it: no test of order relies on sleeping.
struct Gate {
  std::shared_ptr<ManualEvent> state = std::make_shared<ManualEvent>();
  Event event{state};
  ~Gate() { state->complete(); }  // A failed test must not leave a stream waiting for ever.
};

}  // namespace

TEST_CASE("tasks of a stream run in the order of submission on one other thread", "[core][stream]") {
  const auto stream = make_worker_stream("order");
  std::vector<int> seen;
  std::vector<std::thread::id> threads;
  for (int i = 0; i < 100; ++i)
    stream->submit([&, i] {
      seen.push_back(i);
      threads.push_back(std::this_thread::get_id());
    });
  stream->synchronize();
  REQUIRE(seen.size() == 100);
  for (int i = 0; i < 100; ++i) REQUIRE(seen[static_cast<std::size_t>(i)] == i);
  for (const auto& id : threads) REQUIRE((id == threads[0] && id != std::this_thread::get_id()));
}

TEST_CASE("submit returns while the stream is still busy", "[core][stream]") {
  const auto stream = make_worker_stream("busy");
  const Gate gate;
  std::atomic<bool> ran = false;
  stream->wait(gate.event);
  stream->submit([&] { ran = true; });
  REQUIRE_FALSE(ran);
  gate.state->complete();
  stream->synchronize();
  REQUIRE(ran);
}

TEST_CASE("an event is done after the work submitted before it and not sooner", "[core][stream]") {
  const auto stream = make_worker_stream("event");
  const Gate first, second;
  stream->wait(first.event);
  const Event between = stream->record();
  stream->wait(second.event);
  const Event last = stream->record();
  REQUIRE_FALSE(between.done());
  first.state->complete();
  between.wait();
  REQUIRE(between.done());
  REQUIRE_FALSE(last.done());
  REQUIRE_FALSE(last.wait_until(Clock::now() + 5ms));
  second.state->complete();
  REQUIRE(last.wait_until(Clock::now() + 10s));
}

TEST_CASE("a default event is done and a manual event may be completed twice", "[core][stream]") {
  REQUIRE(Event().done());
  REQUIRE(Event().wait_until(Clock::now()));
  const Gate gate;
  REQUIRE_FALSE(gate.event.done());
  gate.state->complete();
  gate.state->complete();
  gate.event.wait();
  REQUIRE(gate.event.done());
}

TEST_CASE("a stream that waits for another's event runs behind it", "[core][stream]") {
  const auto producer = make_worker_stream("producer"), consumer = make_worker_stream("consumer");
  const Gate gate;
  int value = 0, read = -1;
  producer->wait(gate.event);
  producer->submit([&] { value = 5; });
  consumer->wait(producer->record());  // Returns at once: the gate is still shut.
  consumer->submit([&] { read = value; });
  gate.state->complete();
  consumer->synchronize();
  REQUIRE(read == 5);
}

TEST_CASE("synchronize rethrows the first failure once and later tasks still run", "[core][stream][error]") {
  const auto stream = make_worker_stream("failing");
  bool later = false;
  stream->submit([] { fail("first"); });
  stream->submit([] { throw std::logic_error("second"); });
  stream->submit([&] { later = true; });
  REQUIRE_THROWS_WITH(stream->synchronize(), "first");
  REQUIRE(later);
  REQUIRE_NOTHROW(stream->synchronize());
  stream->submit([] { throw std::logic_error("third"); });
  REQUIRE_THROWS_AS(stream->synchronize(), std::logic_error);
}

TEST_CASE("an event behind a failed task is done", "[core][stream]") {
  const auto stream = make_worker_stream("failing");
  stream->submit([] { fail("no"); });
  REQUIRE(stream->record().wait_until(Clock::now() + 10s));
}

TEST_CASE("the destructor finishes the running task and drops the ones behind it", "[core][stream]") {
  Gate started, release;
  std::atomic<bool> finished = false, dropped = true;
  auto stream = make_worker_stream("ending");
  stream->submit([&] {
    started.state->complete();
    release.event.wait();
    finished = true;
  });
  stream->submit([&] { dropped = false; });
  started.event.wait();
  std::jthread opener([&] {
    // Opened late, so that the destructor has emptied the queue by then; too early would fail, never hang.
    std::this_thread::sleep_for(100ms);
    release.state->complete();
  });
  stream.reset();
  REQUIRE(finished);
  REQUIRE(dropped);
}

TEST_CASE("a task's captures are gone once the stream is idle", "[core][stream]") {
  const auto stream = make_worker_stream("captures");
  auto held = std::make_shared<int>(1);
  stream->submit([held] { static_cast<void>(held); });
  stream->synchronize();
  REQUIRE(held.use_count() == 1);
}

TEST_CASE("a stream's thread never enters the thread pool", "[core][stream]") {
  set_num_threads(2);
  const auto stream = make_worker_stream("helper");
  int threads = 0;
  stream->submit([&] { threads = num_threads(); });
  stream->synchronize();
  REQUIRE(threads == 1);
  REQUIRE(num_threads() == 2);
}

TEST_CASE("a thread that waits runs offered tasks itself, in order and as a helper", "[core][stream]") {
  const int threads = num_threads();
  set_num_threads(2);
  const auto stream = make_worker_stream("helped");
  const std::thread::id here = std::this_thread::get_id();
  // The stream's own thread may always be faster; but not each time.
  int number = 0, helped = 0;
  bool ordered = true, serial = true;
  const auto give_up = Clock::now() + 10s;
  while (helped == 0 && Clock::now() < give_up) {
    std::shared_ptr<ManualEvent> done;
    for (int i = 0; i < 3; ++i)
      stream->offer(
          [&, expected = number + i] {
            ordered = ordered && number++ == expected;
            serial = serial && num_threads() == 1;
            helped += std::this_thread::get_id() == here ? 1 : 0;
          },
          done = std::make_shared<ManualEvent>());
    stream->help(Event(done));
    REQUIRE(done->wait_until(Clock::now() + 10s));
  }
  REQUIRE(ordered);
  REQUIRE(serial);
  REQUIRE(helped > 0);
  REQUIRE(num_threads() == 2);
  set_num_threads(threads);
}

TEST_CASE("help stops at the event, and the stream's thread goes on behind it", "[core][stream]") {
  const auto stream = make_worker_stream("helped");
  for (int round = 0; round < 100; ++round) {
    const auto first = std::make_shared<ManualEvent>(), last = std::make_shared<ManualEvent>();
    stream->offer([] {}, first);
    stream->offer([] {}, last);
    stream->help(Event(first));
    REQUIRE(last->wait_until(Clock::now() + 10s));  // Nobody helps any more.
    REQUIRE(first->done());
  }
}

TEST_CASE("help leaves a task that was not offered, and all behind it, to the stream's thread",
          "[core][stream]") {
  const auto stream = make_worker_stream("bound");
  for (int round = 0; round < 100; ++round) {
    std::thread::id bound;
    int value = 0, read = 0;
    const auto done = std::make_shared<ManualEvent>();
    stream->submit([&] {
      bound = std::this_thread::get_id();
      value = 5;
    });
    stream->offer([&] { read = value; }, done);
    stream->help(Event(done));
    REQUIRE(done->wait_until(Clock::now() + 10s));
    REQUIRE(bound != std::this_thread::get_id());
    REQUIRE(read == 5);
  }
}

TEST_CASE("nobody helps while a task runs, and helpers never run two at a time", "[core][stream]") {
  const auto stream = make_worker_stream("one");
  const Gate started, release;
  std::atomic<int> inside = 0, ran = 0;
  std::atomic<bool> alone = true;
  stream->submit([&] {
    started.state->complete();
    release.event.wait();
  });
  started.event.wait();
  std::vector<std::shared_ptr<ManualEvent>> events;
  for (int i = 0; i < 300; ++i) {
    events.push_back(std::make_shared<ManualEvent>());
    stream->offer(
        [&] {
          alone = alone && ++inside == 1;
          ++ran;
          --inside;
        },
        events.back());
  }
  stream->help(Event(events.back()));
  REQUIRE(ran == 0);
  release.state->complete();
  std::vector<std::thread> helpers;
  for (int i = 0; i < 3; ++i)
    helpers.emplace_back([&] {
      for (const auto& event : events) stream->help(Event(event));
    });
  for (std::thread& helper : helpers) helper.join();
  REQUIRE(events.back()->wait_until(Clock::now() + 10s));
  REQUIRE(ran == 300);
  REQUIRE(alone);
}

TEST_CASE("what an offered task throws comes out of synchronize, not out of help", "[core][stream][error]") {
  const auto stream = make_worker_stream("failing");
  const auto done = std::make_shared<ManualEvent>();
  stream->offer([] { fail("offered"); }, done);
  REQUIRE_NOTHROW(stream->help(Event(done)));
  REQUIRE(done->wait_until(Clock::now() + 10s));
  REQUIRE_THROWS_WITH(stream->synchronize(), "offered");
}
