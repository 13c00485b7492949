// SPDX-License-Identifier: MIT
// tests/dist/buffer_sync_test.cpp - each policy for batch norm's running statistics against serial models.
// Ranks always get different data. Policy sync_bn in training: tests/dist/batch_norm_sync_test.cpp.
#include "dist/buffer_sync.h"

#include "kernels/ops.h"
#include "nn/batch_norm.h"
#include "tests/support/ranks.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"
#include "tests/support/training.h"

using namespace brigade;
using namespace brigade::dist;
using test::require;

namespace {

constexpr std::int64_t kChannels = 5;

// The batch of one rank in one step.
Tensor images(int rank, int step) {
  return test::random({4, kChannels, 3, 2}, static_cast<std::uint64_t>(100 * rank + step));
}

std::vector<Tensor> copy_buffers(const nn::Module& module) {
  std::vector<Tensor> out;
  for (const auto& buffer : module.named_buffers()) out.push_back(ops::clone(buffer.tensor));
  return out;
}

// What each rank of p tracks by itself in three steps: serial models, one a rank.
std::vector<std::vector<Tensor>> tracked_alone(int ranks) {
  std::vector<std::vector<Tensor>> out;
  for (int rank = 0; rank < ranks; ++rank) {
    nn::BatchNorm2d serial(kChannels);
    for (int step = 0; step < 3 + rank; ++step) serial(images(rank, step));
    out.push_back(copy_buffers(serial));
  }
  return out;
}

// The same steps by this rank's layer, then the policy. Ranks differ in how many steps they take, too.
std::vector<Tensor> after_policy(std::string_view policy, ProcessGroup& group) {
  nn::BatchNorm2d layer(kChannels);
  for (int step = 0; step < 3 + group.rank(); ++step) layer(images(group.rank(), step));
  sync_buffers(layer.named_buffers(), buffer_policy(policy), group);
  return copy_buffers(layer);
}

}  // namespace

TEST_CASE("policy broadcast: every rank ends with what rank 0's serial model tracks",
          "[dist][buffers][ranks]") {
  test::for_each_world([&](ProcessGroup& group) {
    for (const char* policy : {"broadcast", "sync_bn"})
      test::require_same(after_policy(policy, group), tracked_alone(group.size())[0], policy);
  });
}

TEST_CASE("policy average: every rank ends with the mean of what p serial models track",
          "[dist][buffers][ranks]") {
  test::for_each_world([&](ProcessGroup& group) {
    const auto alone = tracked_alone(group.size());
    std::vector<Tensor> expected{alone[0][0], alone[0][1], alone[0][2]};  // The count of batches is rank 0's.
    for (std::size_t rank = 1; rank < alone.size(); ++rank)
      for (const std::size_t statistic : {0, 1})
        expected[statistic] = ops::add(expected[statistic], alone[rank][statistic]);
    for (const std::size_t statistic : {0, 1}) ops::mul_(expected[statistic], 1.0 / group.size());
    const auto mine = after_policy("average", group);
    test::require_close(mine, expected, 1e-6, "average");
    test::require_same_on_all_ranks(mine, group, "average");
  });
}

TEST_CASE("policy local: every rank keeps what its serial model tracks", "[dist][buffers][ranks]") {
  test::for_each_world([&](ProcessGroup& group) {
    test::require_same(after_policy("local", group),
                       tracked_alone(group.size())[static_cast<std::size_t>(group.rank())], "local");
  });
}

TEST_CASE("averaging once at the end equals averaging after every step", "[dist][buffers][ranks]") {
  test::for_each_world([&](ProcessGroup& group) {
    nn::BatchNorm2d late(kChannels), always(kChannels);
    for (int step = 0; step < 5; ++step) {
      const Tensor x = images(group.rank(), step);
      late(x);
      always(x);
      sync_buffers(always.named_buffers(), BufferPolicy::average, group);
    }
    sync_buffers(late.named_buffers(), BufferPolicy::average, group);
    test::require_close(copy_buffers(late), copy_buffers(always), 1e-6, "average");
  });
}

TEST_CASE("buffers of any dtype, shape and stride are synchronised", "[dist][buffers][ranks]") {
  test::for_each_world([&](ProcessGroup& group) {
    const double mine = group.rank() + 1, mean = (group.size() + 1) / 2.0;
    const auto make = [&](double value) {
      Tensor strided = ops::full({2, 6}, -1).slice(1, 0, 6, 2);
      ops::fill_(strided, value);
      return std::vector<nn::NamedBuffer>{{"wide", ops::full({3}, value, DType::f64)},
                                          {"count", ops::full({}, value, DType::i64)},
                                          {"strided", strided},
                                          {"empty", ops::full({0}, value)},
                                          {"flag", ops::full({2}, value - 1, DType::boolean)}};
    };
    const auto require_equal = [&](const std::vector<nn::NamedBuffer>& a,
                                   const std::vector<nn::NamedBuffer>& b) {
      for (std::size_t i = 0; i < a.size(); ++i)
        require(test::values(a[i].tensor) == test::values(b[i].tensor), a[i].name);
    };
    auto buffers = make(mine), expected = make(mean);
    expected[1] = make(1)[1];  // Integers and flags are rank 0's.
    expected[4] = make(1)[4];
    sync_buffers(buffers, BufferPolicy::average, group);
    require_equal(buffers, expected);
    buffers = make(mine);
    sync_buffers(buffers, BufferPolicy::broadcast, group);
    require_equal(buffers, make(1));
    sync_buffers({}, BufferPolicy::broadcast, group);
  });
}

TEST_CASE("policies have names, and an unknown one lists them", "[dist][buffers][error]") {
  for (const BufferPolicyEntry& entry : buffer_policies()) REQUIRE(buffer_policy(entry.name) == entry.policy);
  REQUIRE_THROWS_WITH(
      buffer_policy("mean"),
      ContainsSubstring("unknown buffer policy \"mean\"; choose from broadcast, average, sync_bn, local"));
}
