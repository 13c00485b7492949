// SPDX-License-Identifier: MIT
// tests/core/caching_allocator_test.cpp - the allocator of devices on a simulated device: streams are queues that the
// test drives, and core/cuda/happens_before.h judges whether memory is handed out too early.
#include "core/cuda/caching_allocator.h"

#include <deque>
#include <random>
#include <set>

#include "core/cuda/happens_before.h"
#include "tests/support/test.h"

using namespace brigade;

namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

/// Memory as numbers, and streams whose work is done when the test says so.
class Simulation final : public DeviceMemory {
 public:
  explicit Simulation(std::int64_t capacity = std::int64_t{1} << 40) : capacity_(capacity) {}

  void* allocate(std::int64_t bytes) override {
    if (used_ + bytes > capacity_) return nullptr;
    used_ += bytes;
    auto* const memory = reinterpret_cast<std::byte*>(next_);
    next_ += static_cast<std::uintptr_t>(bytes) + 4096;  // Segments never touch.
    segments_[memory] = bytes;
    return memory;
  }
  void release(void* memory) noexcept override {
    used_ -= segments_.at(memory);
    segments_.erase(memory);
    // The real one waits for all work of the device.
    for (auto& [stream, queue] : streams_) finish(stream, queue.given);
  }
  Event record(StreamKey stream) override {
    ++records;
    return Event(std::make_shared<Point>(*this, stream, streams_[stream].given, checker.record(stream)));
  }
  std::string name() const override { return "simulated:0"; }

  /// Gives `stream` work on a block; nothing happens yet.
  void work(StreamKey stream, const void* memory, std::int64_t bytes) {
    ++streams_[stream].given;
    if (const std::string wrong = checker.access(stream, memory, bytes, Access::write); !wrong.empty())
      violations.push_back(wrong);
  }
  /// `later` works behind what `earlier` was given until now.
  void order(StreamKey earlier, StreamKey later) {
    checker.wait(later, checker.record(earlier));
    streams_[later].waits.push_back({streams_[later].given, earlier, streams_[earlier].given});
  }
  /// The device does the next thing that `stream` has to do.
  void advance(StreamKey stream) {
    if (streams_[stream].done < streams_[stream].given) finish(stream, streams_[stream].done + 1);
  }
  void finish_all() {
    for (auto& [stream, queue] : streams_) finish(stream, queue.given);
  }

  std::int64_t used() const { return used_; }

  HappensBefore checker;
  std::vector<std::string> violations;
  int records = 0;

 private:
  struct Wait {
    std::int64_t behind;  // Before its work of this number …
    StreamKey stream;     // … it waits for this stream's …
    std::int64_t number;  // … work of that number.
  };
  struct Queue {
    std::int64_t given = 0, done = 0;
    std::deque<Wait> waits{};
  };
  struct Point final : EventState {
    Point(Simulation& owner, StreamKey of, std::int64_t at, std::size_t event)
        : simulation(owner), stream(of), number(at), name(event) {}
    bool done() const override {
      if (simulation.streams_[stream].done < number) return false;
      simulation.checker.host_saw(name);
      return true;
    }
    bool wait_until(Clock::time_point) const override {
      simulation.finish(stream, number);
      return done();
    }
    Simulation& simulation;
    const StreamKey stream;
    const std::int64_t number;
    const std::size_t name;
  };

  void finish(StreamKey stream, std::int64_t number) {
    Queue& queue = streams_[stream];
    while (queue.done < number) {
      while (!queue.waits.empty() && queue.waits.front().behind <= queue.done) {
        const Wait wait = queue.waits.front();
        queue.waits.pop_front();
        finish(wait.stream, wait.number);
      }
      ++queue.done;
    }
  }

  const std::int64_t capacity_;
  std::int64_t used_ = 0;
  std::uintptr_t next_ = std::uintptr_t{1} << 32;
  std::map<void*, std::int64_t> segments_;
  std::map<StreamKey, Queue> streams_;
};

enum class Mutation { none, note_nothing };

/// A random program of three streams: blocks are made for one stream, used by it and by others that wait for it, and
/// given back while all that is still under way. Returns what the checker found.
std::vector<std::string> run_program(unsigned seed, Mutation mutation) {
  std::minstd_rand random(seed);
  Simulation device;
  CachingAllocator allocator(device);
  struct Block {
    void* memory;
    std::int64_t bytes;
    StreamKey stream, last;
    int users = 0;  // Other streams' uses.
  };
  std::vector<Block> blocks;
  const auto pick = [&](std::size_t count) { return static_cast<std::size_t>(random()) % count; };
  for (int step = 0; step < 400; ++step) {
    const StreamKey stream = 1 + pick(3);
    const std::size_t what = pick(8);
    if (what < 3) {
      const std::int64_t bytes = pick(2) == 0 ? 100 + static_cast<std::int64_t>(pick(4)) * 1000
                                              : kMiB * static_cast<std::int64_t>(1 + pick(4));
      blocks.push_back({allocator.allocate(bytes, stream), bytes, stream, stream});
      device.work(stream, blocks.back().memory, bytes);
    } else if (what < 5 && !blocks.empty()) {
      Block& block = blocks[pick(blocks.size())];
      // Uses of one block by several streams are ordered by the program: here each user comes behind the one before,
      // and the block's own stream behind none, so that it has to leave the block alone.
      if (block.users > 0 && stream == block.stream) continue;
      device.order(block.last, stream);
      device.work(stream, block.memory, block.bytes);
      if (mutation != Mutation::note_nothing) allocator.note_use(block.memory, stream);
      block.last = stream;
      block.users += stream == block.stream ? 0 : 1;
    } else if (what == 5 && !blocks.empty()) {
      const std::size_t at = pick(blocks.size());
      allocator.release(blocks[at].memory);
      blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(at));
    } else {
      device.advance(stream);
    }
  }
  return device.violations;
}

}  // namespace

TEST_CASE("a block given back serves its own stream again at once", "[core][allocator]") {
  Simulation device;
  CachingAllocator allocator(device);
  void* const first = allocator.allocate(1000, 1);
  device.work(1, first, 1000);
  allocator.release(first);
  REQUIRE(allocator.allocate(1000, 1) == first);
  REQUIRE(device.records == 0);  // Nobody waits and nobody asks.
}

TEST_CASE("a block given back is not handed to another stream", "[core][allocator]") {
  Simulation device;
  CachingAllocator allocator(device);
  void* const first = allocator.allocate(1000, 1);
  device.work(1, first, 1000);
  allocator.release(first);
  REQUIRE(allocator.allocate(1000, 2) != first);
}

TEST_CASE("a block that another stream uses comes back when that stream is done with it",
          "[core][allocator]") {
  Simulation device;
  CachingAllocator allocator(device);
  void* const first = allocator.allocate(1000, 1);
  device.order(1, 2);
  device.work(2, first, 1000);
  allocator.note_use(static_cast<std::byte*>(first) + 500, 2);  // Anywhere in the block.
  allocator.release(first);
  void* const second = allocator.allocate(1000, 1);
  REQUIRE(second != first);
  device.advance(2);
  REQUIRE(allocator.allocate(1000, 1) == first);
}

TEST_CASE("memory that is not the allocator's may be noted", "[core][allocator]") {
  Simulation device;
  CachingAllocator allocator(device);
  int somewhere = 0;
  REQUIRE_NOTHROW(allocator.note_use(&somewhere, 2));
}

TEST_CASE("no two blocks overlap, whatever is freed in between, and all comes together again",
          "[core][allocator]") {
  std::minstd_rand random(7);
  Simulation device;
  CachingAllocator allocator(device);
  std::map<std::byte*, std::int64_t> blocks;
  bool apart = true, aligned_all = true;
  for (int step = 0; step < 3000; ++step) {
    if (blocks.size() < 50 || random() % 2 == 0) {
      const std::int64_t bytes = random() % 3 == 0 ? static_cast<std::int64_t>(random() % (30 * kMiB))
                                                   : static_cast<std::int64_t>(random() % 5000);
      auto* const memory = static_cast<std::byte*>(allocator.allocate(bytes, 1));
      aligned_all = aligned_all && reinterpret_cast<std::uintptr_t>(memory) % kAlignment == 0;
      const auto after = blocks.lower_bound(memory);
      apart = apart && (after == blocks.end() || memory + bytes <= after->first);
      apart =
          apart && (after == blocks.begin() || std::prev(after)->first + std::prev(after)->second <= memory);
      blocks[memory] = std::max<std::int64_t>(bytes, 1);
    } else {
      auto at = blocks.begin();
      std::advance(at, random() % blocks.size());
      allocator.release(at->first);
      blocks.erase(at);
    }
  }
  REQUIRE(apart);
  REQUIRE(aligned_all);
  for (const auto& [memory, bytes] : blocks) allocator.release(memory);
  REQUIRE(allocator.stats().in_use_bytes == 0);
  REQUIRE(allocator.stats().cached_bytes == device.used());
  allocator.trim();
  REQUIRE(allocator.stats().cached_bytes == 0);
  REQUIRE(device.used() == 0);
}

TEST_CASE("the same steps again ask the device for nothing", "[core][allocator]") {
  Simulation device;
  CachingAllocator allocator(device);
  const auto step = [&] {
    std::vector<void*> blocks;
    for (const std::int64_t bytes : {100l, 5000l, 3 * kMiB, 70 * kMiB, 2 * kMiB, 64l})
      blocks.push_back(allocator.allocate(bytes, 1));
    for (void* block : blocks) allocator.release(block);
  };
  step();
  const MemoryStats before = allocator.stats();
  for (int i = 0; i < 10; ++i) step();
  REQUIRE(allocator.stats().system_allocations == before.system_allocations);
  REQUIRE(allocator.stats().peak_bytes == before.peak_bytes);
}

TEST_CASE("when memory runs out, what others have cached is given up, and waited for", "[core][allocator]") {
  Simulation device(100 * kMiB);
  CachingAllocator allocator(device);
  void* const first = allocator.allocate(80 * kMiB, 1);
  device.order(1, 2);
  device.work(2, first, 80 * kMiB);
  allocator.note_use(first, 2);
  allocator.release(first);
  REQUIRE(allocator.allocate(90 * kMiB, 3) != nullptr);  // Waits for stream 2, gives 80 MiB back, takes 90.
  REQUIRE(allocator.stats().in_use_bytes == 90 * kMiB);
}

TEST_CASE("out of memory says what was asked for, what is in use and what is cached",
          "[core][allocator][error]") {
  Simulation device(100 * kMiB);
  CachingAllocator allocator(device);
  void* const large = allocator.allocate(60 * kMiB, 1);
  REQUIRE_THROWS_WITH(allocator.allocate(50 * kMiB, 1), ContainsSubstring("simulated:0 has no 50 MiB left") &&
                                                            ContainsSubstring("in use 60 MiB") &&
                                                            ContainsSubstring("do not fit 0 MiB"));
  REQUIRE_THROWS_WITH(allocator.allocate(-1, 1), ContainsSubstring("cannot hold -1 bytes"));
  allocator.release(large);
  REQUIRE(allocator.allocate(50 * kMiB, 1) == large);
}

TEST_CASE("random programs of three streams never get memory that is still in use",
          "[core][allocator][A11]") {
  for (unsigned seed = 1; seed <= 100; ++seed) {
    const auto violations = run_program(seed, Mutation::none);
    INFO("seed " << seed << ": " << (violations.empty() ? "" : violations.front()));
    REQUIRE(violations.empty());
  }
}

TEST_CASE("an allocator that is not told of other streams' uses is caught", "[core][allocator][mutation]") {
  int caught = 0;
  for (unsigned seed = 1; seed <= 100; ++seed)
    caught += run_program(seed, Mutation::note_nothing).empty() ? 0 : 1;
  REQUIRE(caught > 50);
}

TEST_CASE("memory of a capture comes from a pool of its own, which nobody else is given until it is released",
          "[core][allocator]") {
  Simulation device;
  CachingAllocator allocator(device);
  static_cast<void>(allocator.allocate(1000, 1));  // So that its segment stays.
  void* const before = allocator.allocate(1000, 1);
  allocator.release(before);
  allocator.begin_capture();
  void* const first = allocator.allocate(1000, 1);
  CHECK(first != before);
  allocator.release(first);
  CHECK(allocator.allocate(1000, 1) == first);  // The stream's own, behind what it did before.
  void* const shared = allocator.allocate(1000, 1);
  allocator.note_use(shared, 2);
  allocator.release(shared);
  CHECK(allocator.allocate(1000, 1) != shared);  // Stream 2 may be at it: nothing tells when it is done.
  const int pool = allocator.end_capture();
  CHECK(device.records == 0);
  allocator.release(first);
  allocator.trim();
  CHECK(allocator.allocate(1000, 1) == before);
  for (int i = 0; i < 100; ++i) {
    void* const other = allocator.allocate(1000, 1);
    CHECK((other != first && other != shared));
  }
  allocator.release_pool(pool, 1);
  bool again = false;
  for (int i = 0; i < 8000 && !again; ++i) again = allocator.allocate(1000, 1) == first;
  CHECK(again);
}

TEST_CASE("what is given back during a capture waits for other streams behind it", "[core][allocator]") {
  Simulation device;
  CachingAllocator allocator(device);
  void* const block = allocator.allocate(1000, 1);
  device.work(2, block, 1000);
  allocator.note_use(block, 2);
  allocator.begin_capture();
  allocator.release(block);
  CHECK(device.records == 0);  // An event recorded now would be the capture's.
  static_cast<void>(allocator.end_capture());
  CHECK(device.records == 1);
  CHECK(allocator.allocate(1000, 1) != block);
  device.finish_all();
  CHECK(allocator.allocate(1000, 1) == block);
}
