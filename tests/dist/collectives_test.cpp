// SPDX-License-Identifier: MIT
// tests/dist/collectives_test.cpp - every collective × dtype × size × world, with inputs that differ by rank, on the
// device of the group.
#include <functional>

#include "tests/dist/patterns.h"
#include "tests/support/ranks.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::dist;
using namespace brigade::test;

namespace {

// Runs `body` for each dtype and size, on each world. An emulated GPU protects its memory page by page: a million
// elements on a device have a case of their own (tests/dist/device_group_test.cpp).
void for_each_case(const std::function<void(ProcessGroup&, DType, std::int64_t)>& body) {
  for_each_world([&](ProcessGroup& group) {
    for (const DType dtype : kAllDTypes)
      for (const std::int64_t n : kSizes)
        if (group.device() == Device{} || n < kLargest) body(group, dtype, n);
  });
}

std::string where(const ProcessGroup& group, DType dtype, std::int64_t n) {
  return str(dtype, " x ", n, " on rank ", group.rank(), "/", group.size());
}

// The ranks' patterns one after another: what a gather must give.
Tensor all_patterns(int size, std::int64_t n, DType dtype) {
  return filled(size * n, dtype, [n](std::int64_t i) { return pattern_at(static_cast<int>(i / n), i % n); });
}

Tensor untouched(const ProcessGroup& group, std::int64_t n, DType dtype) {
  return filled(n, dtype, [](std::int64_t) { return 7; }).to(group.device());
}

// This rank's input, or another one's.
Tensor input(const ProcessGroup& group, std::int64_t n, DType dtype) {
  return pattern(group.rank(), n, dtype).to(group.device());
}
Tensor input_of(int rank, const ProcessGroup& group, std::int64_t n, DType dtype) {
  return pattern(rank, n, dtype).to(group.device());
}

// dist/nccl/nccl_carrier.h: no mean of integers, and one that multiplies by 1/size before it adds up.
bool offers_exactly(const ProcessGroup& group, Reduce op, DType dtype) {
  if (op != Reduce::mean) return true;
  if (dtype == DType::boolean) return false;
  const bool power_of_two = (group.size() & (group.size() - 1)) == 0;
  return group.backend().find("nccl") == std::string_view::npos || (is_floating(dtype) && power_of_two);
}

}  // namespace

TEST_CASE("broadcast gives every rank the root's tensor, from every root", "[dist][collectives][ranks]") {
  for_each_case([](ProcessGroup& group, DType dtype, std::int64_t n) {
    for (int root = 0; root < group.size(); ++root) {
      const Tensor t = input(group, n, dtype);
      group.broadcast(t, root).wait();
      require_same(t, pattern(root, n, dtype), where(group, dtype, n));
    }
  });
}

TEST_CASE("all_reduce gives every rank the sum over ranks", "[dist][collectives][ranks]") {
  for_each_case([](ProcessGroup& group, DType dtype, std::int64_t n) {
    const Tensor t = input(group, n, dtype);
    group.all_reduce(t, Reduce::sum).wait();
    require_same(t, reduced(group.size(), n, dtype, Reduce::sum), where(group, dtype, n));
  });
}

TEST_CASE("reduce gives the root the sum and leaves the other ranks' tensors alone",
          "[dist][collectives][ranks]") {
  for_each_case([](ProcessGroup& group, DType dtype, std::int64_t n) {
    for (int root = 0; root < group.size(); ++root) {
      const Tensor t = input(group, n, dtype);
      group.reduce(t, Reduce::sum, root).wait();
      const Tensor expected = group.rank() == root ? reduced(group.size(), n, dtype, Reduce::sum)
                                                   : pattern(group.rank(), n, dtype);
      require_same(t, expected, where(group, dtype, n));
    }
  });
}

TEST_CASE("reduce_scatter leaves each rank its own slice of the sum", "[dist][collectives][ranks]") {
  for_each_case([](ProcessGroup& group, DType dtype, std::int64_t n) {
    const Tensor t = input(group, n * group.size(), dtype);
    const Tensor out = untouched(group, n, dtype);
    group.reduce_scatter(t, out, Reduce::sum).wait();
    require_same(out, reduced(group.size(), n, dtype, Reduce::sum, group.rank() * n), where(group, dtype, n));
    require_same(t, pattern(group.rank(), n * group.size(), dtype), "the input changed");
  });
}

TEST_CASE("all_gather gives every rank all tensors in rank order", "[dist][collectives][ranks]") {
  for_each_case([](ProcessGroup& group, DType dtype, std::int64_t n) {
    const Tensor out = untouched(group, n * group.size(), dtype);
    group.all_gather(input(group, n, dtype), out).wait();
    require_same(out, all_patterns(group.size(), n, dtype), where(group, dtype, n));
  });
}

TEST_CASE("gather gives the root all tensors in rank order", "[dist][collectives][ranks]") {
  for_each_case([](ProcessGroup& group, DType dtype, std::int64_t n) {
    for (int root = 0; root < group.size(); ++root) {
      const Tensor out = group.rank() == root ? untouched(group, n * group.size(), dtype) : Tensor();
      group.gather(input(group, n, dtype), out, root).wait();
      if (group.rank() == root)
        require_same(out, all_patterns(group.size(), n, dtype), where(group, dtype, n));
    }
  });
}

TEST_CASE("scatter gives each rank its block of the root's tensor", "[dist][collectives][ranks]") {
  for_each_case([](ProcessGroup& group, DType dtype, std::int64_t n) {
    for (int root = 0; root < group.size(); ++root) {
      const Tensor t = group.rank() == root ? input(group, n * group.size(), dtype) : Tensor();
      const Tensor out = untouched(group, n, dtype);
      group.scatter(t, out, root).wait();
      require_same(out, pattern(root, n, dtype, group.rank() * n), where(group, dtype, n));
    }
  });
}

TEST_CASE("all_to_all gives rank r block r of every rank", "[dist][collectives][ranks]") {
  for_each_case([](ProcessGroup& group, DType dtype, std::int64_t n) {
    const Tensor out = untouched(group, n * group.size(), dtype);
    group.all_to_all(input(group, n * group.size(), dtype), out).wait();
    const int rank = group.rank();
    const Tensor expected = filled(n * group.size(), dtype, [n, rank](std::int64_t i) {
      return pattern_at(static_cast<int>(i / n), rank * n + i % n);
    });
    require_same(out, expected, where(group, dtype, n));
  });
}

TEST_CASE("send and recv carry a tensor between every pair of ranks, in order",
          "[dist][collectives][ranks]") {
  for_each_case([](ProcessGroup& group, DType dtype, std::int64_t n) {
    for (int from = 0; from < group.size(); ++from) {
      for (int to = 0; to < group.size(); ++to) {
        if (from == to) continue;
        if (group.rank() == from) {
          const Work first = group.send(input_of(from, group, n, dtype), to);
          group.send(input_of(from + 1, group, n, dtype), to).wait();
          first.wait();
        }
        if (group.rank() == to) {
          const Tensor a = untouched(group, n, dtype), b = untouched(group, n, dtype);
          const Work first = group.recv(a, from);
          group.recv(b, from).wait();
          first.wait();
          require_same(a, pattern(from, n, dtype), where(group, dtype, n));
          require_same(b, pattern(from + 1, n, dtype), where(group, dtype, n));
        }
      }
    }
  });
}

TEST_CASE("every reduce operation is exact in every dtype", "[dist][collectives][reduce][ranks]") {
  for_each_world([](ProcessGroup& group) {
    for (const Reduce op : kAllReduces) {
      for (const DType dtype : kAllDTypes) {
        if (!offers_exactly(group, op, dtype)) continue;
        const std::int64_t n = 1023;
        const std::string what = str(op, " of ", where(group, dtype, n));
        Tensor t = input(group, n, dtype);
        group.all_reduce(t, op).wait();
        require_same(t, reduced(group.size(), n, dtype, op), what);

        const int root = group.size() - 1;
        t = input(group, n, dtype);
        group.reduce(t, op, root).wait();
        if (group.rank() == root) require_same(t, reduced(group.size(), n, dtype, op), what);

        const Tensor out = untouched(group, n, dtype);
        group.reduce_scatter(input(group, n * group.size(), dtype), out, op).wait();
        require_same(out, reduced(group.size(), n, dtype, op, group.rank() * n), what);
      }
    }
  });
}

TEST_CASE("reduce_scatter and all_gather work in place on a rank's own slice", "[dist][collectives][ranks]") {
  for_each_world([](ProcessGroup& group) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::i64}) {
      const std::int64_t n = 1000;
      const Tensor flat = input(group, n * group.size(), dtype);
      const Tensor own = flat.slice(0, group.rank() * n, (group.rank() + 1) * n);
      group.reduce_scatter(flat, own, Reduce::sum).wait();
      require_same(own, reduced(group.size(), n, dtype, Reduce::sum, group.rank() * n),
                   where(group, dtype, n));
      group.all_gather(own, flat).wait();
      require_same(flat, reduced(group.size(), n * group.size(), dtype, Reduce::sum), where(group, dtype, n));
    }
  });
}

TEST_CASE("barrier lets no rank through before all have come", "[dist][collectives][ranks]") {
  if (under_mpi()) return;  // Needs a counter all ranks can see.
  for (const int size : {2, 3, 4}) {
    std::atomic<int> arrived{0};
    for_each_world(
        [&](ProcessGroup& group) {
          for (int round = 1; round <= 50; ++round) {
            ++arrived;
            group.barrier().wait();
            require(arrived >= round * group.size(), str("left barrier ", round, " too early"));
            group.barrier().wait();
          }
        },
        {.sizes = {size}});
  }
}

TEST_CASE("all_gather_text gives every rank all texts in rank order", "[dist][collectives][ranks]") {
  for_each_world([](ProcessGroup& group) {
    const auto text = [](int rank) {
      return rank == 0 ? std::string() : std::string(static_cast<std::size_t>(rank) * 3, 'a');
    };
    const std::vector<std::string> all = group.all_gather_text(text(group.rank()));
    require(all.size() == static_cast<std::size_t>(group.size()), "one text a rank");
    for (int r = 0; r < group.size(); ++r)
      require(all[static_cast<std::size_t>(r)] == text(r), str("text ", r));
  });
}

TEST_CASE("a transport takes tensors of any shape, in the order of their memory",
          "[dist][collectives][ranks]") {
  for_each_world([](ProcessGroup& group) {
    if (group.device() != Device{}) return;  // Of the host's transport.
    const int rank = group.rank(), size = group.size();
    for (const std::int64_t rows : {2, 30'000}) {
      const Tensor t = pattern(rank, 3 * rows, DType::f32).view({rows, 3});
      Tensor all = Tensor::zeros({size, rows, 3}, DType::f32);
      Tensor sum = pattern(rank, 3 * rows, DType::f32).view({rows, 3});
      group
          .run({.operation = "shapes",
                .run =
                    [&](Transport& transport) {
                      if (transport.size() == 1) return;
                      transport.all_gather(t, all);
                      transport.all_reduce(sum, Reduce::sum);
                    }})
          .wait();
      if (size == 1) return;
      require_same(sum.view({3 * rows}), reduced(size, 3 * rows, DType::f32, Reduce::sum), "sum");
      for (int r = 0; r < size; ++r)
        require_same(all.slice(0, r, r + 1).view({3 * rows}), pattern(r, 3 * rows, DType::f32),
                     str("of rank ", r));
    }
  });
}
