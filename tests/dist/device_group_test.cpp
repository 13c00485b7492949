// SPDX-License-Identifier: MIT
// tests/dist/device_group_test.cpp - collectives of a device: order by events, times, and what goes wrong there. Run on
// the emulated GPU (tests/fake_gpu), whose NCCL can be told to break; what a real one can show runs there as well.
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <optional>
#include <thread>

#include "dist/device_choice.h"
#include "dist/device_transport.h"
#include "dist/staged/staged_carrier.h"
#include "dist/threads/thread_transport.h"
#include "tests/dist/patterns.h"
#include "tests/support/ranks.h"
#include "tests/support/skip.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::dist;
using namespace brigade::test;
using Catch::Matchers::StartsWith;

namespace {

bool no_gpu() { return device() != "cuda" || device_count(DeviceType::cuda) == 0; }

// A variable of the environment while it lives.
class Setting {
 public:
  Setting(const char* name, const char* value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    setenv(name, value, 1);
  }
  ~Setting() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

bool setting_is(const char* name, std::string_view value) {
  const char* const told = std::getenv(name);
  return told != nullptr && value == told;
}

Tensor constant(int value, std::int64_t n, Device where) {
  return filled(n, DType::f32, [=](std::int64_t) { return value; }).to(where);
}

// What each rank's body throws, for worlds in which all must.
std::vector<std::string> outcomes(const LaunchOptions& options,
                                  const std::function<void(ProcessGroup&)>& body) {
  std::vector<std::string> out(static_cast<std::size_t>(options.ranks));
  std::mutex mutex;
  static_cast<void>(thrown_by([&] {
    run_ranks(options, [&](ProcessGroup& group) {
      const std::string thrown = thrown_by([&] { body(group); });
      std::lock_guard lock(mutex);
      out[static_cast<std::size_t>(group.rank())] = thrown;
    });
  }));
  return out;
}

// Reduces until it fails, for ten seconds at most.
void reduce_for_ever(ProcessGroup& group) {
  const auto end = Clock::now() + std::chrono::seconds(10);
  while (Clock::now() < end) {
    const Tensor t = constant(group.rank(), 100, group.device());
    group.all_reduce(t, Reduce::sum, "bucket 3").wait();
    static_cast<void>(t.to({}));  // The host waits for the device, as at the end of a step.
  }
}

}  // namespace

TEST_CASE("collectives of a device see what was enqueued before them, and what follows sees them",
          "[dist][device]") {
  if (no_gpu()) return skip("needs BRIGADE_TEST_DEVICE=cuda and a device");
  for_each_world([](ProcessGroup& group) {
    Runtime& gpu = runtime(group.device());
    const int size = group.size();
    for (int round = 0; round < 20; ++round) {
      const std::int64_t n = 1000 + 7919 * (round % 3);
      // Nobody waits: the copy, two collectives and the copy out are ordered by events alone.
      const Tensor t = Tensor::empty({n}, DType::f32, group.device());
      const Storage pinned = gpu.allocate_pinned(t.bytes());
      const Tensor values = Tensor::over(pinned, {n}, DType::f32);
      for (std::int64_t i = 0; i < n; ++i) values.data<float>()[i] = static_cast<float>(group.rank() + round);
      gpu.copy_from_pinned(t.raw(), values.raw(), t.bytes());
      const Tensor all = Tensor::empty({n * size}, DType::f32, group.device());
      const Work sum = group.all_reduce(t, Reduce::sum), gathered = group.all_gather(t, all);
      gathered.wait();
      const int expected = size * round + size * (size - 1) / 2;
      require_same(all, constant(expected, n * size, {}), str("round ", round));
      sum.wait();
      require(sum.times().launch <= sum.times().start && sum.times().start <= sum.times().end,
              "times of a device are in order");
    }
  });
}

TEST_CASE("a tensor may be let go of while its collective is on its way", "[dist][device]") {
  if (no_gpu()) return skip("needs BRIGADE_TEST_DEVICE=cuda and a device");
  for_each_world([](ProcessGroup& group) {
    const Device gpu = group.device();
    const Tensor large = constant(1, 1 << 19, gpu);
    for (int round = 0; round < 3; ++round) {
      const Tensor out = Tensor::empty({1000 * group.size()}, DType::f32, gpu);
      const Work ahead = group.all_reduce(large, Reduce::max);  // Keeps the device busy.
      Work work;
      {
        const Tensor t = constant(group.rank() + round, 1000, gpu);
        work = group.all_gather(t, out);
      }
      work.event().wait();  // Enqueued: nobody on the host holds t any more.
      // Memory of t would be overwritten here if it were free for this stream already.
      const Tensor other = constant(-1, 1000, gpu), another = constant(-2, 1000, gpu);
      work.wait();
      ahead.wait();
      for (int rank = 0; rank < group.size(); ++rank)
        require_same(out.slice(0, rank * 1000, rank * 1000 + 1000), constant(rank + round, 1000, {}),
                     str("round ", round, ", rank ", rank));
    }
  });
}

TEST_CASE("a large tensor of a device is reduced like a small one", "[dist][device]") {
  if (no_gpu()) return skip("needs BRIGADE_TEST_DEVICE=cuda and a device");
  for_each_world(
      [](ProcessGroup& group) {
        const std::int64_t n = (std::int64_t{9} << 18) + 5;  // Three chunks where it is staged.
        const Tensor t = pattern(group.rank(), n, DType::f32).to(group.device());
        group.all_reduce(t, Reduce::sum).wait();
        require_same(t, reduced(group.size(), n, DType::f32, Reduce::sum), "sum");
      },
      {.sizes = {2}});
}

TEST_CASE("tensors of the host travel beside those of a device", "[dist][device]") {
  if (no_gpu()) return skip("needs BRIGADE_TEST_DEVICE=cuda and a device");
  for_each_world([](ProcessGroup& group) {
    const int total = group.size() * (group.size() - 1) / 2;
    const Tensor there = constant(group.rank(), 77, group.device()), here = constant(group.rank(), 33, {});
    const Work first = group.all_reduce(there, Reduce::sum), second = group.all_reduce(here, Reduce::sum);
    second.wait();
    require_same(here, constant(total, 33, {}), "host");
    first.wait();
    require_same(there, constant(total, 77, {}), "device");
  });
}

TEST_CASE("a call on the host of one rank and on the device of another is a mismatch that says so",
          "[dist][device][error]") {
  if (under_mpi()) return;  // Of threads.
  if (no_gpu()) return skip("needs BRIGADE_TEST_DEVICE=cuda and a device");
  const auto thrown = outcomes({.backend = "threads", .ranks = 2, .device = "cuda"}, [](ProcessGroup& group) {
    const Tensor t = constant(1, 10, group.rank() == 0 ? Device{} : group.device());
    group.all_reduce(t, Reduce::sum).wait();
  });
  for (const std::string& text : thrown)
    REQUIRE_THAT(text,
                 ContainsSubstring("rank 0 calls all_reduce(sum) f32 x 10, rank 1 calls all_reduce(sum) f32 "
                                   "x 10 on cuda"));
}

TEST_CASE("tensors of another device than the group's are refused by name", "[dist][device][error]") {
  if (under_mpi()) return;  // Of threads.
  if (no_gpu()) return skip("needs BRIGADE_TEST_DEVICE=cuda and a device");
  run_ranks({.backend = "threads"}, [](ProcessGroup& group) {
    const Tensor t = constant(1, 10, {DeviceType::cuda, 0});
    require_contains(thrown_by([&] { static_cast<void>(group.all_reduce(t, Reduce::sum)); }),
                     "needs memory of the group's device, cpu; got cuda:0");
  });
}

TEST_CASE("staged chunks of any size give the same bits", "[dist][device][staged]") {
  if (under_mpi()) return;  // Of threads.
  if (no_gpu()) return skip("needs BRIGADE_TEST_DEVICE=cuda and a device");
  for (const std::int64_t chunk : {64, 4096, 1 << 20}) {
    const auto hub = make_hub(2);
    const auto connect = [&](int rank) {
      auto host = make_thread_transport(hub, rank);
      auto carrier = make_staged_carrier(*host, {DeviceType::cuda, 0}, chunk);
      return make_device_transport(std::move(host), std::move(carrier), {DeviceType::cuda, 0}, "a test");
    };
    run_ranks({.backend = "threads", .ranks = 2, .connect = connect}, [](ProcessGroup& group) {
      for (const std::int64_t n : {0, 1, 16, 17, 5000}) {
        const Tensor t = pattern(group.rank(), n, DType::bf16).to(group.device());
        group.all_reduce(t, Reduce::mean).wait();
        require_same(t, reduced(2, n, DType::bf16, Reduce::mean), str("mean of ", n));
        const Tensor b = pattern(group.rank(), n, DType::i64).to(group.device());
        group.broadcast(b, 1).wait();
        require_same(b, pattern(1, n, DType::i64), str("broadcast of ", n));
      }
    });
  }
}

namespace {

// Two thread ranks on cuda:0 that lend each other memory in halves of so many bytes.
std::function<std::unique_ptr<Transport>(int)> lending(std::int64_t half_bytes,
                                                       std::string* why_not = nullptr) {
  return [hub = make_hub(3), half_bytes, why_not](int rank) {
    auto host = make_thread_transport(hub, rank);
    std::string why;
    auto carrier = make_ipc(*host, {DeviceType::cuda, 0}, why, half_bytes);
    if (why_not != nullptr && rank == 1) *why_not = why;
    if (!carrier) carrier = make_staged_carrier(*host, {DeviceType::cuda, 0});
    return make_device_transport(std::move(host), std::move(carrier), {DeviceType::cuda, 0}, "a test");
  };
}

}  // namespace

TEST_CASE("memory that ranks lend each other gives the same bits in pieces of any size",
          "[dist][device][ipc]") {
  if (under_mpi()) return;  // Of threads; processes run all of collectives_test.cpp.
  if (no_gpu()) return skip("needs BRIGADE_TEST_DEVICE=cuda and a device");
  for (const std::int64_t half : {192, 4096, 1 << 20}) {
    run_ranks({.backend = "threads", .ranks = 3, .connect = lending(half)}, [half](ProcessGroup& group) {
      require(group.backend() == "memory of the device beside threads" || setting_is("FAKE_GPU_IPC", "0"),
              std::string(group.backend()));
      for (const std::int64_t n : {0, 1, 16, 17, 1000, 200'000}) {
        if (n > 100 * half) continue;  // Thousands of pieces.
        const Tensor t = pattern(group.rank(), n, DType::bf16).to(group.device());
        group.all_reduce(t, Reduce::mean).wait();
        require_same(t, reduced(3, n, DType::bf16, Reduce::mean), str("mean of ", n));
        const Tensor b = pattern(group.rank(), n, DType::i64).to(group.device());
        group.broadcast(b, 1).wait();
        require_same(b, pattern(1, n, DType::i64), str("broadcast of ", n));
      }
    });
  }
}

TEST_CASE("ranks that cannot lend each other memory find it out together", "[dist][device][ipc]") {
  if (under_mpi()) return;  // Of threads.
  if (no_gpu()) return skip("needs BRIGADE_TEST_DEVICE=cuda and an emulated device");
  if (!device_name({DeviceType::cuda, 0}).starts_with("emulated")) return;
  const Setting refused("FAKE_GPU_IPC", "0");
  std::string why;
  run_ranks({.backend = "threads", .ranks = 3, .connect = lending(4096, &why)}, [](ProcessGroup& group) {
    require(group.backend() == "pinned host memory beside threads", std::string(group.backend()));
    const Tensor t = constant(group.rank(), 100, group.device());
    group.all_reduce(t, Reduce::sum).wait();
    require_same(t, constant(3, 100, {}), "sum");
  });
  REQUIRE_THAT(why, StartsWith("rank 0: cudaIpcGetMemHandle: "));
}

TEST_CASE("ranks that lend memory and come with different sizes say so instead of adding up garbage",
          "[dist][device][ipc][error]") {
  if (under_mpi()) return;  // Of threads: the group ends aborted.
  if (no_gpu()) return skip("needs BRIGADE_TEST_DEVICE=cuda and a device");
  LaunchOptions launch{.backend = "threads", .ranks = 3, .connect = lending(4096)};
  launch.group.check_calls = false;
  const auto thrown = outcomes(launch, [](ProcessGroup& group) {
    const Tensor t = constant(1, 10 + group.rank(), group.device());
    group.all_reduce(t, Reduce::sum).wait();
  });
  if (setting_is("FAKE_GPU_IPC", "0")) return;
  for (const std::string& text : thrown)
    REQUIRE_THAT(text, ContainsSubstring("the ranks came with tensors of different sizes: 40, 44, 48 bytes"));
}

// The emulated NCCL's mishaps. Groups end aborted: threads only.

TEST_CASE("a link that breaks is a CommError on all ranks, whichever saw it", "[dist][device][nccl][error]") {
  if (no_gpu() || nccl_version() == 0) return skip("needs BRIGADE_TEST_DEVICE=cuda, a device and NCCL");
  // Groups end aborted; and one device is not for NCCL: no reason to call all other cases skipped.
  if (under_mpi() || device_count(DeviceType::cuda) < 2) return;
  const Setting broken("FAKE_NCCL_ASYNC_ERROR", "1:3");
  const auto thrown = outcomes({.backend = "threads", .ranks = 2, .device = "cuda"}, reduce_for_ever);
  for (const std::string& text : thrown) REQUIRE_THAT(text, StartsWith("CommError: "));
  REQUIRE_THAT(thrown[0] + thrown[1], ContainsSubstring("a link broke"));
}

// Run by mpiexec -n 2, as a CTest entry of its own: it ends the job.
TEST_CASE("hidden: a link breaks on rank 1 of two processes", "[.][nccl-break]") {
  REQUIRE(under_mpi());
  const Setting broken("FAKE_NCCL_ASYNC_ERROR", "1:3");
  const LaunchEnvironment self = launch_environment();
  const LaunchOptions launch{.backend = "mpi", .ranks = self.size, .device = "cuda", .job = mpi_job()};
  const std::string error = thrown_by([&] {
    run_ranks(launch, [&](ProcessGroup& group) {
      const auto begin = Clock::now();
      const std::string thrown = thrown_by([&] { reduce_for_ever(group); });
      const bool in_time = Clock::now() - begin < std::chrono::seconds(5);
      std::cerr << str("rank ", self.rank, in_time ? " ended in time: " : " ended late: ", thrown, "\n");
      throw CommError(thrown);
    });
  });
  std::this_thread::sleep_for(std::chrono::seconds(1));  // mpiexec ends the others with the first.
  FAIL(error);
}

TEST_CASE("a kernel that waits for a peer for ever is ended by the time-out, on all ranks",
          "[dist][device][nccl][error]") {
  if (no_gpu() || nccl_version() == 0) return skip("needs BRIGADE_TEST_DEVICE=cuda, a device and NCCL");
  // Groups end aborted; and one device is not for NCCL: no reason to call all other cases skipped.
  if (under_mpi() || device_count(DeviceType::cuda) < 2) return;
  const Setting hanging("FAKE_NCCL_HANG", "0:2");
  const auto begin = Clock::now();
  const auto thrown = outcomes({.backend = "threads",
                                .ranks = 2,
                                .group = {.timeout = std::chrono::milliseconds(700)},
                                .device = "cuda"},
                               reduce_for_ever);
  for (const std::string& text : thrown) REQUIRE_THAT(text, StartsWith("CommError: "));
  REQUIRE_THAT(thrown[0] + thrown[1], ContainsSubstring("bucket 3, on the device: not done within 700 ms"));
  REQUIRE(Clock::now() - begin < std::chrono::seconds(9));
}

TEST_CASE("an NCCL that refuses two ranks on a device says so, and does not hang",
          "[dist][device][nccl][error]") {
  if (under_mpi()) return;
  if (no_gpu() || nccl_version() == 0) return skip("needs an emulated device and NCCL");
  const auto hub = make_hub(2);
  const auto connect = [&](int rank) {
    auto host = make_thread_transport(hub, rank);
    auto carrier = make_nccl(*host, {DeviceType::cuda, 0}, std::chrono::seconds(10));
    return make_device_transport(std::move(host), std::move(carrier), {DeviceType::cuda, 0}, "a test");
  };
  REQUIRE_THROWS_WITH(run_ranks({.backend = "threads", .ranks = 2, .connect = connect}, [](ProcessGroup&) {}),
                      ContainsSubstring("Duplicate GPU detected"));
}
