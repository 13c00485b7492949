// SPDX-License-Identifier: MIT
// tests/dist/shm_test.cpp - what ranks that share memory have of their own: tensors that move without a copy, memory
// that comes and goes, and processes that die. (All collectives on it: BRIGADE_TEST_BACKEND, tests/support/ranks.h.)
#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <mutex>
#include <thread>

#include "dist/shm/meeting.h"
#include "dist/shm/shm_transport.h"
#include "kernels/ops.h"
#include "tests/dist/patterns.h"
#include "tests/support/ranks.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::dist;
using namespace brigade::test;
using std::chrono::milliseconds;

namespace {

int entries(const char* folder) {
  int count = 0;
  DIR* const open = opendir(folder);
  if (open == nullptr) return 0;
  while (readdir(open) != nullptr) ++count;
  closedir(open);
  return count;
}

// Runs `body(transport)` as rank 1 in a process of its own, which ends with it. A fork sees the same shared memory.
pid_t start_rank_1(const std::shared_ptr<HostMemory>& memory, const std::function<void(Transport&)>& body) {
  const pid_t child = fork();
  if (child != 0) return child;
  try {
    body(*make_shm_transport(memory, 1));
  } catch (...) {
  }
  _exit(0);
}

}  // namespace

TEST_CASE(
    "tensors in shared memory are reduced to the same bits as others, in every dtype and at every place",
    "[dist][shm][ranks]") {
  for_each_world([](ProcessGroup& group) {
    constexpr std::int64_t n = 70'001;
    const Storage memory = group.allocate_shared(3 * n * 8);
    for (const DType dtype : kAllDTypes) {
      for (const Reduce op : kAllReduces) {
        if (op == Reduce::mean && dtype == DType::boolean) continue;
        // From another offset on each rank: nothing says that they must be the same.
        const std::int64_t begin = (64 * group.rank() + 8) * size_of(dtype);
        const Tensor t = Tensor::over(memory.slice(begin, n * size_of(dtype)), {n}, dtype);
        const Tensor mine = pattern(group.rank(), n, dtype);
        std::memcpy(t.raw(), mine.raw(), static_cast<std::size_t>(mine.bytes()));
        group.all_reduce(t, op).wait();
        require_same(t, reduced(group.size(), n, dtype, op), str(op, " of ", dtype));
      }
    }
  });
}

TEST_CASE("the other collectives take tensors from shared memory, too", "[dist][shm][ranks]") {
  for_each_world([](ProcessGroup& group) {
    constexpr std::int64_t n = 30'000;
    const int rank = group.rank(), size = group.size();
    const Storage memory = group.allocate_shared(n * size * 4);
    const Tensor all = Tensor::over(memory, {n * size}, DType::f32);
    const auto fill = [&] {
      const Tensor mine = pattern(rank, n * size, DType::f32);
      std::memcpy(all.raw(), mine.raw(), static_cast<std::size_t>(mine.bytes()));
    };
    const Tensor own = all.slice(0, rank * n, (rank + 1) * n), out = Tensor::zeros({n}),
                 blocks = Tensor::zeros({n * size});
    fill();
    group.broadcast(all, size - 1).wait();
    require_same(all, pattern(size - 1, n * size, DType::f32), "broadcast");
    fill();
    group.reduce(all, Reduce::sum, 0).wait();
    require_same(
        all,
        rank == 0 ? reduced(size, n * size, DType::f32, Reduce::sum) : pattern(rank, n * size, DType::f32),
        "reduce");
    fill();
    group.reduce_scatter(all, out, Reduce::sum).wait();
    require_same(out, reduced(size, n, DType::f32, Reduce::sum, rank * n), "reduce_scatter");
    group.all_to_all(all, blocks).wait();
    require_same(
        blocks,
        filled(n * size, DType::f32,
               [&](std::int64_t i) { return pattern_at(static_cast<int>(i / n), rank * n + i % n); }),
        "all_to_all");
    group.reduce_scatter(all, own, Reduce::sum).wait();
    group.all_gather(own, all).wait();
    require_same(all, reduced(size, n * size, DType::f32, Reduce::sum), "all_gather in place");
  });
}

TEST_CASE("a tensor that lies in shared memory on some ranks only is reduced all the same",
          "[dist][shm][ranks]") {
  for_each_world([](ProcessGroup& group) {
    constexpr std::int64_t n = 200'000;
    const Storage memory = group.allocate_shared(n * 4);
    const Tensor t = group.rank() == 0 ? Tensor::over(memory, {n}, DType::f32) : Tensor::zeros({n});
    const Tensor mine = pattern(group.rank(), n, DType::f32);
    std::memcpy(t.raw(), mine.raw(), static_cast<std::size_t>(mine.bytes()));
    group.all_reduce(t, Reduce::sum).wait();
    require_same(t, reduced(group.size(), n, DType::f32, Reduce::sum), "mixed");
  });
}

TEST_CASE("memory of a group outlives it", "[dist][shm][ranks]") {
  Storage kept;
  std::mutex mutex;
  for_each_world([&](ProcessGroup& group) {
    const Storage memory = group.allocate_shared(100'000);
    std::memset(memory.data(), 7, 100'000);
    std::lock_guard lock(mutex);
    kept = memory;
  });
  REQUIRE(kept.data()[99'999] == std::byte{7});
}

TEST_CASE("memory comes zeroed, in the first gap, and goes back", "[dist][shm]") {
  const auto memory = HostMemory::make(2);
  const Storage first = memory->allocate(1, 10'000);
  std::memset(first.data(), 1, 10'000);
  const std::int64_t offset = memory->offset_of(1, first.data(), 10'000);
  REQUIRE(offset >= 0);
  REQUIRE(memory->offset_of(0, first.data(), 10'000) == -1);
  REQUIRE(memory->at(1, offset) == first.data());
  Storage second = memory->allocate(1, 5'000'000);
  REQUIRE(reinterpret_cast<std::uintptr_t>(second.data()) % kAlignment == 0);
  const std::byte* const place = second.data();
  std::memset(second.data(), 1, 5'000'000);
  const Storage third = memory->allocate(1, 1);
  second = Storage();
  second = memory->allocate(1, 4'500'000);
  REQUIRE(second.data() == place);
  REQUIRE(std::all_of(second.data(), second.data() + second.bytes(),
                      [](std::byte b) { return b == std::byte{0}; }));
  REQUIRE(third.data() != first.data());
}

TEST_CASE("neither descriptors nor names of shared memory are left, or exist at all", "[dist][shm][A26]") {
  const int files = entries("/proc/self/fd");
  const auto memory = HostMemory::make(2);
  REQUIRE(entries("/proc/self/fd") == files);
  const Storage part = memory->allocate(0, 1'000'000);
  REQUIRE(lies_in_shared_memory(part.data()));
  std::ifstream maps("/proc/self/maps");
  const std::string text{std::istreambuf_iterator<char>(maps), {}};
  REQUIRE(text.find("memfd:brigade (deleted)") != std::string::npos);  // No file system knows it.
}

TEST_CASE("a limit on the size of files means no shared memory, and kills nobody", "[dist][shm][failure]") {
  constexpr std::int64_t megabyte = 1 << 20;
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  rlimit tight = before;
  tight.rlim_cur = megabyte;
  REQUIRE(setrlimit(RLIMIT_FSIZE, &tight) == 0);
  const bool at_limit = static_cast<bool>(make_memory(megabyte)),
             above = static_cast<bool>(make_memory(megabyte + 1)),
             all_there_is = static_cast<bool>(HostMemory::make_shared_memory(2));
  setrlimit(RLIMIT_FSIZE, &before);
  CHECK(at_limit);
  CHECK_FALSE(above);
  CHECK_FALSE(all_there_is);
  CHECK(HostMemory::make_shared_memory(2));
}

TEST_CASE(
    "a rank that is killed while another waits asleep is named, whether or not its parent asks for its end",
    "[dist][shm][failure][A26]") {
  const bool asked_for = GENERATE(true, false);
  const auto memory = HostMemory::make(2);
  const pid_t child = start_rank_1(memory, [](Transport& transport) {
    transport.barrier();
    while (true) ::pause();
  });
  const auto transport = make_shm_transport(memory, 0);
  transport->barrier();
  std::thread killer([&] {
    std::this_thread::sleep_for(milliseconds(150));
    kill(child, SIGKILL);
    if (asked_for) waitpid(child, nullptr, 0);
  });
  const auto begin = Clock::now();
  const std::string error = thrown_by([&] {
    const WaitLimit limit(begin + std::chrono::seconds(5));
    transport->barrier();
  });
  killer.join();
  if (!asked_for) waitpid(child, nullptr, 0);
  REQUIRE(error == str("CommError: rank 1 (process ", child, ") is gone; it had not joined the others"));
  REQUIRE(Clock::now() - begin < std::chrono::seconds(2));
}

TEST_CASE("a rank that has done what is waited for and ended since is no loss", "[dist][shm][failure]") {
  const auto memory = HostMemory::make(2);
  const pid_t child = start_rank_1(memory, [](Transport&) {});
  Meeting meeting(memory, 0);
  // Nobody rings: true before the first nap is over, and the process has ended by then.
  const auto then = Clock::now() + milliseconds(50);
  CHECK(thrown_by([&] { static_cast<void>(meeting.wait([&] { return Clock::now() > then; })); }).empty());
  waitpid(child, nullptr, 0);
}

TEST_CASE("an abort in one process ends the wait of another with its reason", "[dist][shm][failure]") {
  const auto memory = HostMemory::make(2);
  const pid_t child = start_rank_1(memory, [](Transport& transport) {
    transport.barrier();
    std::this_thread::sleep_for(milliseconds(100));
    transport.abort("operator pressed stop");
    while (true) ::pause();
  });
  const auto transport = make_shm_transport(memory, 0);
  transport->barrier();
  Tensor t = Tensor::zeros({10});
  CHECK(thrown_by([&] { transport->recv(t, 1); }) == "CommError: operator pressed stop");
  CHECK(thrown_by([&] { transport->all_reduce(t, Reduce::sum); }) == "CommError: operator pressed stop");
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST_CASE("who waits in shared memory says who is missing, or whose message", "[dist][shm][failure]") {
  const auto memory = HostMemory::make(3);
  const auto body = [&](ProcessGroup& group) {
    group.barrier().wait();
    if (group.rank() == 1) std::this_thread::sleep_for(milliseconds(600));
    if (group.rank() != 2) {
      group.barrier("bucket 3").wait();
      return;
    }
    Progress progress{.step = 7};
    std::strncpy(progress.phase, "backward", sizeof progress.phase - 1);
    group.report(progress);
    std::this_thread::sleep_for(milliseconds(600));
  };
  const std::string error = thrown_by([&] {
    run_ranks({.backend = "threads",
               .ranks = 3,
               .group = {.timeout = milliseconds(200)},
               .connect = [&](int rank) { return make_shm_transport(memory, rank); }},
              body);
  });
  REQUIRE_THAT(error,
               ContainsSubstring("bucket 3: not done within 200 ms; arrived: rank 0; missing: ranks 1, 2 "
                                 "(backward of step 7)"));
}

TEST_CASE("ranks that come with other sizes are told so where calls are not compared",
          "[dist][shm][failure]") {
  const auto memory = HostMemory::make(2);
  const std::string error = thrown_by([&] {
    run_ranks({.backend = "threads",
               .ranks = 2,
               .group = {.timeout = std::chrono::seconds(5), .check_calls = false},
               .connect = [&](int rank) { return make_shm_transport(memory, rank); }},
              [](ProcessGroup& group) {
                group.all_reduce(Tensor::zeros({10 + group.rank()}), Reduce::sum).wait();
              });
  });
  REQUIRE_THAT(error, ContainsSubstring("tensors of different sizes: 40, 44 bytes"));
}

TEST_CASE("a short tensor on one rank and a long one on the other are an error on both, whatever lies where",
          "[dist][shm][failure]") {
  for (const bool shared : {true, false}) {
    const auto memory = HostMemory::make(2);
    const std::int64_t counts[] = {100, 1 << 18};
    std::string errors[2];
    bool untouched[2] = {};
    // The group has ended: its close() says so once more.
    const std::string end = thrown_by([&] {
      run_ranks({.backend = "threads",
                 .ranks = 2,
                 .group = {.timeout = std::chrono::seconds(5), .check_calls = false},
                 .connect = [&](int rank) { return make_shm_transport(memory, rank); }},
                [&](ProcessGroup& group) {
                  const int rank = group.rank();
                  const std::int64_t n = counts[rank];
                  const Storage storage = group.allocate_shared((1 << 18) * 4);
                  // Both moves have been made before, with sizes that agree with one rank's next.
                  group.all_reduce(Tensor::over(storage, {1 << 18}, DType::f32), Reduce::sum).wait();
                  group.all_reduce(Tensor::zeros({100}), Reduce::sum).wait();
                  Tensor t =
                      shared ? Tensor::over(storage.slice(0, n * 4), {n}, DType::f32) : Tensor::zeros({n});
                  ops::fill_(t, rank + 1);
                  errors[rank] = thrown_by([&] { group.all_reduce(t, Reduce::sum).wait(); });
                  const std::vector<float> values = t.to_vector<float>();
                  untouched[rank] = std::all_of(values.begin(), values.end(),
                                                [&](float x) { return x == static_cast<float>(rank + 1); });
                });
    });
    CHECK_THAT(end, ContainsSubstring("400, 1048576 bytes"));
    for (const int rank : {0, 1}) {
      INFO("rank " << rank << ", shared " << shared);
      CHECK_THAT(errors[rank], ContainsSubstring("tensors of different sizes: 400, 1048576 bytes"));
      CHECK(untouched[rank]);
    }
  }
}
