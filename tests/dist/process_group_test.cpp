// SPDX-License-Identifier: MIT
// tests/dist/process_group_test.cpp - order, local checks, mismatch reports, the life of a group.
#include "dist/process_group.h"

#include <thread>

#include "tests/dist/patterns.h"
#include "tests/support/ranks.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::dist;
using namespace brigade::test;

namespace {

Tensor ones(std::int64_t n, DType dtype = DType::f32) {
  return filled(n, dtype, [](std::int64_t) { return 1; });
}

// What waiting for the Work that `call` returns throws.
std::string outcome(const std::function<Work()>& call) {
  return thrown_by([&] { call().wait(); });
}

}  // namespace

TEST_CASE("calls in flight run in order, each on the result of the one before", "[dist][group][ranks]") {
  for_each_world([](ProcessGroup& group) {
    // Each round multiplies t by p, if and only if every call sees the result of the one before it.
    const int size = group.size();
    const Tensor t = ones(1000), all = Tensor::zeros({1000 * size});
    std::vector<Work> works;
    int expected = 1;
    for (int i = 0; i < 6; ++i) {
      works.push_back(group.all_reduce(t, Reduce::sum, str("round ", i)));
      works.push_back(group.all_gather(t, all));
      works.push_back(group.broadcast(t, i % size));
      works.push_back(group.reduce_scatter(all, t, Reduce::mean));
      expected *= size;
    }
    for (const Work& work : works) work.wait();
    require_same(t, filled(1000, DType::f32, [=](std::int64_t) { return expected; }), "p to the sixth");
    for (std::size_t i = 1; i < works.size(); ++i) {
      require(works[i].done() && works[i].event().done(), "done after wait");
      require(works[i].times().launch <= works[i].times().start &&
                  works[i].times().start <= works[i].times().end &&
                  works[i - 1].times().end <= works[i].times().start,
              "times are in order");
    }
  });
}

TEST_CASE("a wait runs what has not begun itself, in order with what was launched before",
          "[dist][group][ranks]") {
  for_each_world([](ProcessGroup& group) {
    const std::thread::id here = std::this_thread::get_id();
    int launched = 0, run = 0, helped = 0;
    bool ordered = true, may_help = false;
    const auto launch = [&] {
      const auto note = [&, number = launched++](Transport& transport) {
        ordered = ordered && run++ == number;
        may_help = transport.any_thread();
        helped += std::this_thread::get_id() == here ? 1 : 0;
      };
      return group.run({.operation = "note", .run = note});
    };
    for (int round = 0; round < 60; ++round) {
      // Some are launched and left for a while, as buckets are.
      for (int i = 0; i < round % 4; ++i) static_cast<void>(launch());
      launch().wait();
      const Tensor t = ones(100);
      group.all_reduce(t, Reduce::sum).wait();
      require_same(t, filled(100, DType::f32, [&](std::int64_t) { return group.size(); }), "sum");
    }
    require(ordered && run == launched, "calls run once each, in order");
    require(may_help || helped == 0, "calls stay on the stream's thread");
    require(!may_help || helped > 0, "no wait of sixty has helped");
  });
}

TEST_CASE("a default-constructed Work is done", "[dist][work]") {
  const Work work;
  REQUIRE(work.done());
  REQUIRE(work.event().done());
  REQUIRE_NOTHROW(work.wait());
}

TEST_CASE("in a group of one every collective is the identity", "[dist][group]") {
  for_each_world(
      [](ProcessGroup& group) {
        const Tensor expected = random({33}, 5);
        const Tensor t = Tensor::from(expected.to_vector<float>(), {33});
        for (const Reduce op : kAllReduces) {
          group.all_reduce(t, op).wait();
          group.reduce(t, op, 0).wait();
        }
        group.broadcast(t, 0).wait();
        require_same(t, expected, "all_reduce, reduce, broadcast");
        const std::function<Work(const Tensor&)> calls[] = {
            [&](const Tensor& out) { return group.reduce_scatter(t, out, Reduce::mean); },
            [&](const Tensor& out) { return group.all_gather(t, out); },
            [&](const Tensor& out) { return group.gather(t, out, 0); },
            [&](const Tensor& out) { return group.scatter(t, out, 0); },
            [&](const Tensor& out) { return group.all_to_all(t, out); },
        };
        for (const auto& call : calls) {
          const Tensor out = Tensor::zeros({33});
          call(out).wait();
          require_same(out, expected, "into out");
        }
      },
      {.sizes = {1}});
}

TEST_CASE("a mismatch is the same CommError on all ranks, naming both calls, sequence and label",
          "[dist][group][error][ranks][A08]") {
  struct Mismatch {
    std::function<Work(ProcessGroup&)> first, others;  // What rank 0 and the other ranks call.
    std::string first_text, others_text;
  };
  const auto reduce_of = [](std::int64_t n, DType dtype, Reduce op) {
    return [=](ProcessGroup& group) { return group.all_reduce(ones(n, dtype), op, "bucket 3"); };
  };
  const Mismatch mismatches[] = {
      {reduce_of(100, DType::f32, Reduce::sum), reduce_of(200, DType::f32, Reduce::sum),
       "rank 0 calls all_reduce(sum) f32 x 100", "all_reduce(sum) f32 x 200"},
      {reduce_of(1, DType::bf16, Reduce::sum), reduce_of(1, DType::f32, Reduce::sum),
       "rank 0 calls all_reduce(sum) bf16 x 1", "all_reduce(sum) f32 x 1"},
      {reduce_of(5, DType::f32, Reduce::sum), reduce_of(5, DType::f32, Reduce::mean),
       "rank 0 calls all_reduce(sum) f32 x 5", "all_reduce(mean) f32 x 5"},
      {[](ProcessGroup& group) { return group.broadcast(ones(5), 0, "bucket 3"); },
       [](ProcessGroup& group) { return group.broadcast(ones(5), 1, "bucket 3"); },
       "rank 0 calls broadcast f32 x 5, root 0", "broadcast f32 x 5, root 1"},
      {[](ProcessGroup& group) { return group.barrier("bucket 3"); }, reduce_of(5, DType::f32, Reduce::sum),
       "rank 0 calls barrier", "all_reduce(sum) f32 x 5"},
      {[](ProcessGroup& group) { return group.all_gather(ones(0), ones(0), "bucket 3"); },
       [](ProcessGroup& group) { return group.reduce_scatter(ones(0), ones(0), Reduce::sum, "bucket 3"); },
       "rank 0 calls all_gather f32 x 0", "reduce_scatter(sum) f32 x 0"},
  };
  for (const Mismatch& mismatch : mismatches) {
    for_each_world(
        [&](ProcessGroup& group) {
          if (group.size() == 1) return;
          group.barrier().wait();
          const std::string error =
              outcome([&] { return group.rank() == 0 ? mismatch.first(group) : mismatch.others(group); });
          require_contains(error, "CommError: ");
          require_contains(error, mismatch.first_text);
          require_contains(error, mismatch.others_text);
          require_contains(error, group.size() == 2   ? "rank 1 calls"
                                  : group.size() == 3 ? "ranks 1, 2 call"
                                                      : "ranks 1, 2, 3 call");
          require_contains(error, "sequence 1");
          require_contains(error, "bucket 3");
          require_contains(error, str("rank ", group.rank(), "/", group.size()));
          // Later calls fail at once with the same reason, though they match. The group still closes in order.
          require_contains(outcome([&] { return group.barrier(); }), mismatch.first_text);
        },
        {.sizes = {2, 3, 4}});
  }
}

TEST_CASE("a mismatch leaves tensors as they were", "[dist][group][error][ranks]") {
  for_each_world(
      [](ProcessGroup& group) {
        if (group.size() == 1) return;
        const std::int64_t n = 10 + group.rank();
        const Tensor t = pattern(group.rank(), n, DType::f32);
        require_contains(outcome([&] { return group.all_reduce(t, Reduce::sum); }), "calls differ");
        require_same(t, pattern(group.rank(), n, DType::f32), "changed");
      },
      {.sizes = {2, 3}});
}

TEST_CASE("without call checks the threads backend still refuses tensors of different sizes",
          "[dist][group][error]") {
  REQUIRE_THROWS_WITH(
      run_ranks({.backend = "threads", .ranks = 2, .group = {.check_calls = false}},
                [](ProcessGroup& group) { group.all_reduce(ones(10 + group.rank()), Reduce::sum).wait(); }),
      ContainsSubstring("different sizes"));
}

TEST_CASE("non-contiguous tensors are refused and neighbouring memory stays untouched",
          "[dist][group][error][ranks][A09]") {
  for_each_world([](ProcessGroup& group) {
    const int size = group.size();
    const Tensor base = random({5, 3}, 1), before = Tensor::from(base.to_vector<float>(), {5, 3});
    const Tensor transposed = base.transpose(0, 1);
    const Tensor strided = base.view({15}).slice(0, 0, 15, 2);
    for (const Tensor& t : {transposed, strided}) {
      const std::function<Work()> calls[] = {
          [&] { return group.all_reduce(t, Reduce::sum); },
          [&] { return group.broadcast(t, 0); },
          [&] { return group.reduce(t, Reduce::sum, 0); },
          [&] { return group.all_gather(t, Tensor::zeros({size * t.numel()})); },
          [&] { return group.all_gather(Tensor::zeros({t.numel()}), t); },
          [&] { return group.reduce_scatter(Tensor::zeros({size * t.numel()}), t, Reduce::sum); },
          [&] { return group.gather(t, Tensor::zeros({size * t.numel()}), 0); },
          [&] { return group.scatter(Tensor::zeros({size * t.numel()}), t, 0); },
          [&] { return group.all_to_all(t, Tensor::zeros({t.numel()})); },
      };
      for (const auto& call : calls) {
        const std::string error = outcome(call);
        require_contains(error, "Error: ");
        require_contains(error, "contiguous");
        require(error.rfind("CommError", 0) != 0, "a local mistake is no CommError");
      }
      require_same(base, before, "memory changed");
    }
    group.barrier().wait();  // Nothing was sent: the group is still good.
  });
}

TEST_CASE("a slice of flat memory is reduced in place and its neighbours stay untouched",
          "[dist][group][ranks]") {
  for_each_world([](ProcessGroup& group) {
    const Tensor flat = ones(100);
    group.all_reduce(flat.slice(0, 30, 60), Reduce::sum).wait();
    const int size = group.size();
    require_same(flat, filled(100, DType::f32, [&](std::int64_t i) { return i >= 30 && i < 60 ? size : 1; }),
                 "slice");
  });
}

TEST_CASE("a channels_last tensor is reduced in place", "[dist][group][ranks]") {
  for_each_world([](ProcessGroup& group) {
    const Tensor t = Tensor::zeros({2, 3, 4, 5}, DType::f32, {}, MemoryFormat::channels_last);
    for (std::int64_t i = 0; i < t.numel(); ++i) t.data<float>()[i] = static_cast<float>(i);
    group.all_reduce(t, Reduce::mean).wait();
    for (std::int64_t i = 0; i < t.numel(); ++i)
      require(t.data<float>()[i] == static_cast<float>(i), "the mean of equal values is the value");
  });
}

TEST_CASE("writing collectives bump the tensor's version", "[dist][group][ranks]") {
  for_each_world([](ProcessGroup& group) {
    const Tensor t = ones(5), out = Tensor::zeros({5 * group.size()});
    const auto version = t.version(), out_version = out.version();
    group.all_reduce(t, Reduce::sum).wait();
    require(t.version() > version, "all_reduce");
    const auto after = t.version();
    group.all_gather(t, out).wait();
    require(out.version() > out_version && t.version() == after, "all_gather writes out only");
  });
}

TEST_CASE("roots, peers and sizes out of range are local Errors", "[dist][group][error][ranks]") {
  for_each_world([](ProcessGroup& group) {
    const int size = group.size();
    const Tensor t = ones(6);
    for (const int root : {-1, size, size + 5}) {
      const std::string error = outcome([&] { return group.broadcast(t, root); });
      require_contains(error, str("Error: broadcast: root must be a rank of the group; got root ", root));
      require_contains(outcome([&] { return group.reduce(t, Reduce::sum, root); }), "Error: reduce: root");
      require_contains(outcome([&] { return group.gather(t, t, root); }), "Error: gather: root");
      require_contains(outcome([&] { return group.scatter(t, t, root); }), "Error: scatter: root");
      require_contains(outcome([&] { return group.send(t, root); }), "Error: send: to");
      require_contains(outcome([&] { return group.recv(t, root); }), "Error: recv: from");
    }
    require_contains(outcome([&] { return group.send(t, group.rank()); }), "another rank");
    require_contains(outcome([&] { return group.recv(t, group.rank()); }), "another rank");
    require_contains(outcome([&] { return group.all_reduce(Tensor(), Reduce::sum); }), "undefined");
    require_contains(outcome([&] { return group.all_gather(t, ones(6 * size + 1)); }), "f32 [6]");
    require_contains(outcome([&] { return group.reduce_scatter(t, ones(6, DType::f64), Reduce::sum); }),
                     "dtype");
    require_contains(outcome([&] { return group.all_to_all(t, ones(12)); }), "all_to_all: t and out");
    require_contains(outcome([&] { return group.all_reduce(ones(3, DType::boolean), Reduce::mean); }),
                     "bool");
    const Tensor flat = ones(6 * size + 1);
    require_contains(outcome([&] {
                       return group.all_gather(flat.slice(0, 6 * size - 5, 6 * size + 1),
                                               flat.slice(0, 0, 6 * size));
                     }),
                     "overlap");
    group.barrier().wait();
  });
}

TEST_CASE("a closed group refuses calls", "[dist][group][error]") {
  std::string error, twice;
  const auto body = [&](ProcessGroup& group) {
    group.close();
    error = outcome([&] { return group.barrier(); });
    twice = thrown_by([&] { group.close(); });
  };
  // run_ranks closes too, which a closed group refuses: that is the error it reports.
  REQUIRE_THROWS_WITH(run_ranks({.backend = "threads"}, body), ContainsSubstring("the group is closed"));
  REQUIRE_THAT(error, ContainsSubstring("Error: barrier") && ContainsSubstring("the group is closed"));
  REQUIRE_THAT(twice, ContainsSubstring("the group is closed"));
}

TEST_CASE("describe_mismatch says nothing about equal calls and groups ranks that agree", "[dist][group]") {
  const CallRecord barrier{.sequence = 4, .operation = "barrier"};
  CallRecord reduce{.sequence = 4, .operation = "all_reduce", .op = Reduce::max, .count = 9};
  REQUIRE(describe_mismatch({barrier, barrier}) == "");
  REQUIRE(describe_mismatch({barrier, reduce, barrier}) ==
          "ranks 0, 2 call barrier, rank 1 calls all_reduce(max) f32 x 9");
  reduce.sequence = 5;
  REQUIRE_THAT(describe_mismatch({barrier, reduce}), ContainsSubstring("as sequence 5"));
}
