// SPDX-License-Identifier: MIT
// tests/dist/reductions_test.cpp - what a reduction means where it is not exact: rounding, overflow, NaN; and that all
// ranks hold the same bits, for every algorithm.
#include <cmath>
#include <limits>
#include <thread>

#include "dist/algorithms/algorithms.h"
#include "dist/reduce_buffers.h"
#include "dist/threads/thread_transport.h"
#include "tests/dist/patterns.h"
#include "tests/support/ranks.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::dist;
using namespace brigade::test;

namespace {

// Throws unless t has the same bits on all ranks.
void require_equal_on_all_ranks(ProcessGroup& group, const Tensor& t, const std::string& what) {
  const Tensor all = Tensor::empty({group.size() * t.numel()}, t.dtype());
  group.all_gather(t, all).wait();
  for (int r = 0; r < group.size(); ++r)
    require_same(all.slice(0, r * t.numel(), (r + 1) * t.numel()), t,
                 str(what, ": ranks ", r, " and ", group.rank()));
}

}  // namespace

TEST_CASE("every algorithm gives the exact sum in every dtype and size", "[dist][algorithms][ranks]") {
  for (const std::string_view name : algorithm_names()) {
    for_each_world(
        [](ProcessGroup& group) {
          for (const DType dtype : kAllDTypes) {
            // Besides the usual sizes some with fewer elements than ranks, and slices of unequal length.
            for (const std::int64_t n : {0, 1, 2, 3, 5, 7, 1023, 1 << 16}) {
              const Tensor t = pattern(group.rank(), n, dtype);
              group.all_reduce(t, Reduce::sum).wait();
              require_same(t, reduced(group.size(), n, dtype, Reduce::sum), str(dtype, " x ", n));
            }
          }
        },
        {.algorithm = std::string(name)});
  }
}

TEST_CASE("every algorithm knows every operation", "[dist][algorithms][ranks]") {
  for (const std::string_view name : algorithm_names()) {
    for_each_world(
        [](ProcessGroup& group) {
          for (const Reduce op : kAllReduces) {
            for (const DType dtype : {DType::f32, DType::bf16, DType::i32, DType::u8}) {
              const Tensor t = pattern(group.rank(), 1023, dtype);
              group.all_reduce(t, op).wait();
              require_same(t, reduced(group.size(), 1023, dtype, op), str(op, " of ", dtype));
            }
          }
        },
        {.algorithm = std::string(name)});
  }
}

TEST_CASE("all ranks get the same bits from sums that round, with every algorithm",
          "[dist][algorithms][ranks]") {
  for (const std::string_view name : algorithm_names()) {
    for_each_world(
        [](ProcessGroup& group) {
          for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
            for (const std::int64_t n : {1, 7, 1023, 100'000}) {
              const Tensor t = random({n}, static_cast<std::uint64_t>(group.rank()) + 1, dtype);
              group.all_reduce(t, Reduce::mean).wait();
              require_equal_on_all_ranks(group, t, str(dtype, " x ", n));
            }
          }
        },
        {.algorithm = std::string(name)});
  }
}

TEST_CASE("the threads backend sums in rank order, so repeats are bit-identical", "[dist][reduce]") {
  for_each_world([](ProcessGroup& group) {
    std::vector<float> expected(1023, 0.0F);
    for (int r = 0; r < group.size(); ++r) {
      const std::vector<float> next = random({1023}, static_cast<std::uint64_t>(r)).to_vector<float>();
      for (std::size_t i = 0; i < next.size(); ++i) expected[i] = r == 0 ? next[i] : expected[i] + next[i];
    }
    for (int repeat = 0; repeat < 3; ++repeat) {
      const Tensor t = random({1023}, static_cast<std::uint64_t>(group.rank()));
      group.all_reduce(t, Reduce::sum).wait();
      require_same(t, Tensor::from(expected, {1023}), "not the sum in rank order");
    }
  });
}

TEST_CASE("16-bit floats are summed in f32 and rounded once", "[dist][reduce][ranks]") {
  for (const std::string_view name : algorithm_names()) {
    for_each_world(
        [](ProcessGroup& group) {
          if (group.size() != 4) return;
          // f16: four times 30000 overflows when summed in f16, and 2^-24 / 4 vanishes when divided first.
          const Tensor large = filled(9, DType::f16, [](std::int64_t) { return 30000; });
          group.all_reduce(large, Reduce::mean).wait();
          require_same(large, filled(9, DType::f16, [](std::int64_t) { return 30000; }), "mean of 30000");
          const Tensor tiny = Tensor::from(std::vector<f16>(9, f16(0x1p-24F)), {9});
          group.all_reduce(tiny, Reduce::mean).wait();
          require_same(tiny, Tensor::from(std::vector<f16>(9, f16(0x1p-24F)), {9}), "mean of 2^-24");
          // bf16 has 8 bits: 256 + 1 rounds back to 256 at each of three steps, but 256 + 3 is 260 when rounded once.
          const float value = group.rank() == 0 ? 256.0F : 1.0F;
          const Tensor t = Tensor::from(std::vector<bf16>(9, bf16(value)), {9});
          group.all_reduce(t, Reduce::sum).wait();
          require_same(t, Tensor::from(std::vector<bf16>(9, bf16(260.0F)), {9}), "256 + 1 + 1 + 1");
        },
        {.algorithm = std::string(name)});
  }
}

TEST_CASE("the mean of integers truncates towards zero and sums wrap around", "[dist][reduce][ranks]") {
  for_each_world([](ProcessGroup& group) {
    const int size = group.size();
    Tensor t = Tensor::from(std::vector<std::int32_t>{-1 - group.rank(), 1 + group.rank()}, {2});
    group.all_reduce(t, Reduce::mean).wait();
    const std::int32_t sum = size * (size + 1) / 2;
    require_same(t, Tensor::from(std::vector<std::int32_t>{-(sum / size), sum / size}, {2}), "mean");

    t = Tensor::from(std::vector<std::uint8_t>{200}, {1});
    group.all_reduce(t, Reduce::sum).wait();
    require_same(t, Tensor::from(std::vector<std::uint8_t>{static_cast<std::uint8_t>(200 * size)}, {1}),
                 "u8 wraps");
    const std::int32_t most = std::numeric_limits<std::int32_t>::max();
    t = Tensor::from(std::vector<std::int32_t>{most}, {1});
    group.all_reduce(t, Reduce::sum).wait();
    const auto wrapped =
        static_cast<std::int32_t>(static_cast<std::uint32_t>(most) * static_cast<std::uint32_t>(size));
    require_same(t, Tensor::from(std::vector<std::int32_t>{wrapped}, {1}), "i32 wraps");
  });
}

TEST_CASE("a NaN on one rank is the min and max on all ranks, and zeros are ordered by sign",
          "[dist][reduce][ranks]") {
  for (const std::string_view name : algorithm_names()) {
    for_each_world(
        [](ProcessGroup& group) {
          const int last = group.size() - 1;
          for (const Reduce op : {Reduce::min, Reduce::max}) {
            const bool is_last = group.rank() == last;
            const Tensor t =
                Tensor::from(std::vector<float>{is_last ? NAN : 1.0F, is_last ? -0.0F : 0.0F}, {2});
            group.all_reduce(t, op).wait();
            const std::vector<float> got = t.to_vector<float>();
            require(std::isnan(got[0]), "NaN lost");
            const bool negative = op == Reduce::min || group.size() == 1;
            require(got[1] == 0 && std::signbit(got[1]) == negative, str(op, " of zeros"));
            if (group.size() > 1) require_equal_on_all_ranks(group, t, "zeros");
          }
        },
        {.algorithm = std::string(name)});
  }
}

TEST_CASE("a ring's first half completes one slice a rank and its second half spreads them",
          "[dist][algorithms]") {
  for (const int size : {1, 2, 3, 4}) {
    const auto hub = make_hub(size);
    std::vector<std::thread> threads;
    std::vector<Tensor> halfway(static_cast<std::size_t>(size)), done(static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        const auto transport = make_thread_transport(hub, rank);
        Tensor t = pattern(rank, 10, DType::f32);  // 10 elements: slices of unequal length.
        ring_reduce_scatter(*transport, t, Reduce::sum);
        const Tensor slice = ring_slice(t, rank, size);
        halfway[static_cast<std::size_t>(rank)] = Tensor::from(slice.to_vector<float>(), {slice.numel()});
        ring_all_gather(*transport, t);
        done[static_cast<std::size_t>(rank)] = t;
      });
    }
    for (std::thread& thread : threads) thread.join();
    const Tensor expected = reduced(size, 10, DType::f32, Reduce::sum);
    for (int rank = 0; rank < size; ++rank) {
      REQUIRE(differs_bitwise(halfway[static_cast<std::size_t>(rank)], ring_slice(expected, rank, size)) ==
              "");
      REQUIRE(differs_bitwise(done[static_cast<std::size_t>(rank)], expected) == "");
    }
  }
}

TEST_CASE("an unknown algorithm lists the choices", "[dist][algorithms][error]") {
  REQUIRE_THROWS_WITH(
      run_ranks({.backend = "threads", .algorithm = "rings"}, [](ProcessGroup&) {}),
      ContainsSubstring("\"rings\"") && ContainsSubstring("auto, naive, tree, ring, halving_doubling"));
  REQUIRE(algorithm_names().size() == 5);
}

TEST_CASE("buffers of any number of ranks are reduced into one of them or into all, in place",
          "[dist][reduce]") {
  constexpr std::int64_t n = 2'500;  // More than two blocks.
  for (int size = 1; size <= 7; ++size) {
    for (const DType dtype : kAllDTypes) {
      for (const Reduce op : {Reduce::sum, Reduce::min, Reduce::max}) {
        for (int own = -1; own < size; ++own) {
          std::vector<Tensor> tensors;
          std::vector<const std::byte*> sources;
          std::vector<std::byte*> outs;
          for (int r = 0; r < size; ++r) {
            tensors.push_back(pattern(r, n, dtype));
            sources.push_back(tensors.back().raw());
            if (own < 0 || own == r) outs.push_back(tensors.back().raw());
          }
          reduce_buffers(sources, outs, dtype, n, op);
          INFO(str(op, " of ", dtype, ", ", size, " ranks, into ", own));
          for (int r = 0; r < size; ++r) {
            const bool written = own < 0 || own == r;
            const Tensor expected = written ? reduced(size, n, dtype, op) : pattern(r, n, dtype);
            REQUIRE(differs_bitwise(tensors[static_cast<std::size_t>(r)], expected) == "");
          }
        }
      }
    }
  }
}
