// SPDX-License-Identifier: MIT
// tests/core/cuda_runtime_test.cpp - memory and copies of a CUDA device, and tensors that move to it and back.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "core/cuda/check_cuda.h"
#include "core/cuda/stream_cuda.h"
#include "tests/core/cuda_gate.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace std::chrono_literals;
using test::Gate;
using test::test_device;

namespace {

/// test::random() makes its tensors on the device.
Tensor on_host(const Shape& shape, std::uint64_t seed, DType dtype = DType::f32,
               MemoryFormat format = MemoryFormat::contiguous) {
  return test::random(shape, seed, dtype, format).to(Device{});
}

}  // namespace

TEST_CASE("a copied source may be overwritten at once", "[core][.cuda]") {
  Runtime& device = runtime(test_device());
  const Storage memory(test_device(), 40'000);
  for (const bool pinned : {false, true}) {
    const Storage host = pinned ? device.allocate_pinned(40'000) : Storage(Device{}, 40'000);
    auto* const numbers = reinterpret_cast<int*>(host.data());
    std::fill_n(numbers, 10'000, 7);
    device.copy_from_host(memory.data(), numbers, 40'000);
    std::fill_n(numbers, 10'000, 8);
    std::vector<int> back(10'000);
    device.copy_to_host(back.data(), memory.data(), 40'000);
    REQUIRE(back == std::vector<int>(10'000, 7));
  }
}

TEST_CASE("copies of pinned memory come behind the stream's work, and the caller goes on", "[core][.cuda]") {
  Runtime& device = runtime(test_device());
  const Storage host = device.allocate_pinned(4000), back = device.allocate_pinned(4000);
  const Storage memory(test_device(), 4000);
  auto *const from = reinterpret_cast<int*>(host.data()), *const to = reinterpret_cast<int*>(back.data());
  std::fill_n(from, 1000, 1);
  std::fill_n(to, 1000, 2);
  Gate gate;
  gate.hold(device.current_stream());
  device.copy_from_pinned(memory.data(), from, 4000);
  device.copy_to_pinned(to, memory.data(), 4000);
  const Event copied = device.current_stream().record();
  REQUIRE_FALSE(copied.done());
  from[0] = 5;  // Not yet read: the stream stands still.
  gate.open();
  copied.wait();
  REQUIRE(to[0] == 5);
  REQUIRE(to[999] == 1);
}

TEST_CASE("pinned memory that is given back is not handed out while a copy still reads it", "[core][.cuda]") {
  Runtime& device = runtime(test_device());
  const Storage memory(test_device(), 4000);
  Gate gate;
  Storage first = device.allocate_pinned(4000);
  const std::byte* const at = first.data();
  gate.hold(device.current_stream());
  device.copy_from_pinned(memory.data(), first.data(), 4000);
  first = Storage();
  REQUIRE(device.allocate_pinned(4000).data() != at);
  gate.open();
  device.current_stream().synchronize();
  bool again = false;  // Among the free blocks of that size.
  std::vector<Storage> blocks;
  for (int i = 0; i < 600 && !again; ++i)
    again = blocks.emplace_back(device.allocate_pinned(4000)).data() == at;
  REQUIRE(again);
}

TEST_CASE("memory that another stream still reads is not handed out before it is done", "[core][.cuda]") {
  Runtime& device = runtime(test_device());
  const auto other = device.make_stream("reader");
  Gate gate;
  auto block = std::make_unique<Storage>(test_device(), 3 << 20);
  const std::byte* const at = block->data();
  other->wait(device.current_stream().record());
  gate.hold(*other);
  device.note_use(at + 1000, *other);
  block.reset();
  REQUIRE(Storage(test_device(), 3 << 20).data() != at);
  gate.open();
  other->synchronize();
  bool again = false;
  std::vector<Storage> blocks;
  for (int i = 0; i < 100 && !again; ++i) again = blocks.emplace_back(test_device(), 3 << 20).data() == at;
  REQUIRE(again);
}

TEST_CASE("memory is counted, kept when it is freed, and given back by trim", "[core][.cuda]") {
  Runtime& device = runtime(test_device());
  device.trim();
  const MemoryStats before = device.memory_stats();
  for (int i = 0; i < 3; ++i) {
    const Storage memory(test_device(), 50 << 20);
    REQUIRE(device.memory_stats().in_use_bytes == before.in_use_bytes + (50 << 20));
  }
  const MemoryStats after = device.memory_stats();
  REQUIRE(after.in_use_bytes == before.in_use_bytes);
  REQUIRE(after.system_allocations == before.system_allocations + 1);
  REQUIRE(after.cached_bytes >= 50 << 20);
  device.trim();
  REQUIRE(device.memory_stats().cached_bytes == before.cached_bytes);
}

TEST_CASE("a device that has no such memory says how much is in use", "[core][.cuda][error]") {
  REQUIRE_THROWS_WITH(runtime(test_device()).allocate(std::int64_t{1} << 46),
                      ContainsSubstring(str(test_device(), " has no 67108864 MiB left; in use")));
}

TEST_CASE("a tensor comes back from a device as it went, whatever its strides and dtype", "[core][.cuda]") {
  const Tensor x = on_host({3, 4, 5, 6}, 1),
               last = on_host({2, 3, 4, 5}, 2, DType::bf16, MemoryFormat::channels_last);
  for (const Tensor& t :
       {x, last, x.transpose(1, 3), x.slice(2, 1, 5, 2), x.select(0, 1), on_host({1, 4}, 3).expand({5, 4}),
        on_host({0, 3}, 4), on_host({}, 5), on_host({7}, 6, DType::boolean)}) {
    const Tensor there = t.to(test_device());
    REQUIRE(there.device() == test_device());
    REQUIRE(there.strides() == t.strides());
    REQUIRE(test::differs_bitwise(there, t) == "");
    REQUIRE(test::differs_bitwise(there.to(Device{}), t) == "");
    REQUIRE(there.to(test_device()).same_view(there));
  }
  REQUIRE(Tensor::from(std::vector<float>{3.5f}, {1}).to(test_device()).item() == 3.5);
}

TEST_CASE("zeros are zeros on a device whose memory is not", "[core][.cuda]") {
  for (int i = 0; i < 3; ++i) {
    const Tensor t = Tensor::zeros({100, 7}, DType::f32, test_device());
    REQUIRE(t.to_vector<float>() == std::vector<float>(700, 0.f));
    runtime(test_device()).copy_from_host(t.raw(), on_host({100, 7}, 1).raw(), t.bytes());
  }
}

TEST_CASE("storage moves with all tensors over it, but not parts of one", "[core][.cuda][error]") {
  const Tensor x = on_host({4, 6}, 1), view = x.transpose(0, 1),
               before = Tensor::from(x.to_vector<float>(), {4, 6});
  const std::uint64_t version = x.version();
  x.storage().move_to(test_device());
  REQUIRE(view.device() == test_device());
  REQUIRE(test::differs_bitwise(view, before.transpose(0, 1)) == "");
  REQUIRE(x.version() == version);
  x.storage().move_to(Device{});
  REQUIRE(test::differs_bitwise(x, before) == "");
  const Storage whole(Device{}, 1000), part = whole.slice(0, 100);
  REQUIRE_THROWS_WITH(part.move_to(test_device()), ContainsSubstring("part of a larger range"));
  REQUIRE_THROWS_WITH(whole.move_to(test_device()), ContainsSubstring("part of a larger range"));
}

TEST_CASE("a tensor moves between two devices", "[core][.cuda]") {
  if (device_count(DeviceType::cuda) < 2)
    return;  // Not skip(): that would hide the other cases of this entry.
  const Device first{DeviceType::cuda, 0}, second{DeviceType::cuda, 1};
  const Tensor x = on_host({100, 3}, 1);
  const Tensor moved = x.to(first).to(second);
  REQUIRE(moved.device() == second);
  REQUIRE(test::differs_bitwise(moved, x) == "");
}

TEST_CASE("a host that follows a pointer of the emulated device dies of it", "[core][.cuda]") {
  if (!device_name(test_device()).starts_with("emulated"))
    return;  // Of real ones some can be read by the host.
  const Tensor t = test::random({4}, 1);
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);  // Not Catch's, which would report it.
    *reinterpret_cast<volatile float*>(t.raw()) = 1;
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  REQUIRE((WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGBUS));
}

TEST_CASE("a failed call is reported with its name, its text and what was done", "[core][.cuda][error]") {
  REQUIRE_THROWS_WITH(check_cuda(cudaSetDevice(99), "cudaSetDevice", "to use cuda:99"),
                      "cudaSetDevice: invalid device ordinal (cudaErrorInvalidDevice) to use cuda:99");
  REQUIRE(cudaGetLastError() == cudaSuccess);  // Not left for the next one to find.
}
