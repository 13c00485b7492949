// SPDX-License-Identifier: MIT
// tests/core/fault_point_test.cpp - what $BRIGADE_FAULT may say, and that it happens there, then and to nobody else.
#include "core/fault_point.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "core/check.h"
#include "core/tensor.h"
#include "tests/support/skip.h"
#include "tests/support/test.h"

using namespace brigade;
using Catch::Matchers::Contains;

namespace {

// Faults until the end of a test, and what was told of them.
class Armed {
 public:
  explicit Armed(const std::string& specification) {
    arm_faults(specification, [this](const std::string& line) { lines.push_back(line); });
  }
  ~Armed() {
    disarm_faults();
    set_fault_rank(-1, FaultThreads::this_one);
    set_fault_step(-1);
  }
  Armed(const Armed&) = delete;
  Armed& operator=(const Armed&) = delete;
  std::vector<std::string> lines;
};

bool throws(FaultAt at, const std::string& label = "") {
  try {
    fault_point(at, label);
    return false;
  } catch (const Error&) {
    return true;
  }
}

int count_nan(const Tensor& t) {
  int count = 0;
  for (const float value : t.to_vector<float>()) count += std::isnan(value);
  return count;
}

}  // namespace

TEST_CASE("a fault specification is read word by word", "[core][fault]") {
  const FaultSpec spec = parse_fault_spec(
      "checkpoint.write:hit=3:rank=1:action=enospc;backward:p=0.25:step=7:action=delay=200ms;;seed=7;"
      "gradient:label=fc.weight:action=nan;exit:action=exit=9;start:action=delay=2s");
  REQUIRE(spec.seed == 7);
  REQUIRE(spec.clauses.size() == 5);
  REQUIRE(spec.clauses[0].at == FaultAt::checkpoint_write);
  REQUIRE(spec.clauses[0].action == FaultAction::enospc);
  REQUIRE(spec.clauses[0].hit == 3);
  REQUIRE(spec.clauses[0].rank == 1);
  REQUIRE_FALSE(spec.clauses[0].step);
  REQUIRE(spec.clauses[1].hit == 0);
  REQUIRE(spec.clauses[1].p == 0.25);
  REQUIRE(spec.clauses[1].step == 7);
  REQUIRE(spec.clauses[1].delay == std::chrono::milliseconds(200));
  REQUIRE(spec.clauses[2].label == "fc.weight");
  REQUIRE(spec.clauses[2].hit == 1);
  REQUIRE(spec.clauses[3].exit_code == 9);
  REQUIRE(spec.clauses[4].delay == std::chrono::seconds(2));
}

TEST_CASE("the table of fault points is in the order of the enumeration", "[core][fault]") {
  for (std::size_t i = 0; i < fault_points().size(); ++i)
    REQUIRE(static_cast<std::size_t>(fault_points()[i].at) == i);
}

TEST_CASE("a mistake in a fault specification is named with what there is", "[core][fault][error]") {
  const auto refused = [](const std::string& text, const std::string& why) {
    INFO(text);
    REQUIRE_THROWS_WITH(parse_fault_spec(text), Contains(why));
  };
  refused("", "needs a fault");
  refused("seed=3", "needs a fault");
  refused("gradients:action=nan", "unknown fault point \"gradients\"; choose from start, wrapping");
  refused("gradient:action=burn", "unknown fault action \"burn\"; choose from throw, delay");
  refused("gradient", "needs an action");
  refused("gradient:often:action=nan", "unknown word \"often\"; choose from hit, p, rank");
  refused("gradient:hit=0:action=nan", "hit must be a number from 1");
  refused("gradient:hit=1x:action=nan", "got \"1x\"");
  refused("gradient:hit=1:p=0.5:action=nan", "exclude each other");
  refused("gradient:p=1.5:action=nan", "p must be a number from 0 to 1");
  refused("gradient:p=nan:action=nan", "p must be a number from 0 to 1");
  refused("gradient:rank=-1:action=nan", "rank must be a number");
  refused("gradient:action=delay", "delay must be like 200ms or 2s");
  refused("gradient:action=delay=5", "delay must be like 200ms or 2s");
  refused("gradient:action=exit=256", "exit must be a number from 0 to 255");
  refused("gradient:action=kill=9", "takes no value");
  refused("start:action=nan", "nan cannot happen at start; choose from throw, delay, hang, exit, kill, stop");
  refused("checkpoint.fsync:action=short", "short cannot happen at checkpoint.fsync");
  refused("gradient:action=nan;seed=x", "seed must be a number");
}

TEST_CASE("a fault happens at its n-th visit only, and is told", "[core][fault]") {
  if (!kFaultPoints) return test::skip("this build has no fault points");
  const Armed armed("bucket:hit=3:action=throw");
  std::vector<bool> thrown;
  for (int visit = 0; visit < 5; ++visit) thrown.push_back(throws(FaultAt::bucket, "bucket 2"));
  REQUIRE(thrown == std::vector<bool>{false, false, true, false, false});
  REQUIRE_FALSE(throws(FaultAt::backward));
  REQUIRE(armed.lines == std::vector<std::string>{"fault: bucket (bucket 2), visit 3: throw"});
}

TEST_CASE("a fault chooses rank, step and label, and counts only those visits", "[core][fault]") {
  if (!kFaultPoints) return test::skip("this build has no fault points");
  const Armed armed("gradient:hit=2:rank=1:step=4:label=fc:action=throw");
  std::vector<std::string> thrown;
  for (const int rank : {0, 1})
    for (const int step : {3, 4})
      for (const char* const label : {"fc", "conv", "fc"}) {
        set_fault_rank(rank, FaultThreads::this_one);
        set_fault_step(step);
        if (throws(FaultAt::gradient, label)) thrown.push_back(str(rank, " ", step, " ", label));
      }
  REQUIRE(thrown == std::vector<std::string>{"1 4 fc"});
}

TEST_CASE("threads that have not said their rank have the process's", "[core][fault]") {
  if (!kFaultPoints) return test::skip("this build has no fault points");
  const Armed armed("bucket:rank=2:action=throw");
  set_fault_rank(2, FaultThreads::all);
  set_fault_rank(0, FaultThreads::this_one);
  const bool here = throws(FaultAt::bucket);
  bool there = false;
  std::thread([&] { there = throws(FaultAt::bucket); }).join();
  set_fault_rank(-1, FaultThreads::all);
  REQUIRE_FALSE(here);
  REQUIRE(there);
}

TEST_CASE("random faults depend on seed and rank alone, and are as frequent as asked", "[core][fault]") {
  if (!kFaultPoints) return test::skip("this build has no fault points");
  const auto draw = [](int seed, int rank) {
    const Armed armed(str("bucket:p=0.25:action=throw;seed=", seed));
    set_fault_rank(rank, FaultThreads::this_one);
    std::vector<bool> thrown;
    for (int visit = 0; visit < 400; ++visit) thrown.push_back(throws(FaultAt::bucket));
    return thrown;
  };
  const std::vector<bool> first = draw(1, 0);
  REQUIRE(first == draw(1, 0));
  REQUIRE(first != draw(2, 0));
  REQUIRE(first != draw(1, 1));
  const auto count = std::count(first.begin(), first.end(), true);
  REQUIRE(count > 60);  // 100 with a deviation of 8.7.
  REQUIRE(count < 140);
}

TEST_CASE("a value becomes NaN, or loses one bit", "[core][fault]") {
  if (!kFaultPoints) return test::skip("this build has no fault points");
  const Tensor t = Tensor::from(std::vector<float>{1, 2, 3, 4, 5}, {5});
  {
    const Armed armed("gradient:hit=2:action=nan");
    fault_point(FaultAt::gradient, t);
    REQUIRE(count_nan(t) == 0);
    fault_point(FaultAt::gradient, t);
    REQUIRE(count_nan(t) == 1);
  }
  const Tensor u = Tensor::from(std::vector<float>{1, 2, 3, 4, 5}, {5});
  const Armed armed("gradient:action=flip");
  fault_point(FaultAt::gradient, u);
  int bits = 0;
  for (int i = 0; i < 20; ++i) {
    const float value = static_cast<float>(i / 4 + 1);
    bits +=
        std::popcount(static_cast<unsigned>(u.raw()[i] ^ reinterpret_cast<const std::byte*>(&value)[i % 4]));
  }
  REQUIRE(bits == 1);
}

TEST_CASE("a system call is told to fail, to write less, or other bytes", "[core][fault]") {
  if (!kFaultPoints) return test::skip("this build has no fault points");
  std::vector<std::byte> bytes(64);
  REQUIRE(io_fault(FaultAt::checkpoint_write, "a", bytes).bytes == 64);
  const Armed armed(
      "checkpoint.write:hit=1:action=enospc;checkpoint.write:hit=2:action=eio;checkpoint.write:hit=3:action="
      "short;"
      "checkpoint.write:hit=4:action=flip");
  REQUIRE(io_fault(FaultAt::checkpoint_write, "a", bytes).error == ENOSPC);
  REQUIRE(io_fault(FaultAt::checkpoint_write, "a", bytes).error == EIO);
  const IoFault written_short = io_fault(FaultAt::checkpoint_write, "a", bytes);
  REQUIRE(written_short.error == 0);
  REQUIRE(written_short.bytes > 0);
  REQUIRE(written_short.bytes < 64);
  REQUIRE(bytes == std::vector<std::byte>(64));
  REQUIRE(io_fault(FaultAt::checkpoint_write, "a", bytes).bytes == 64);
  REQUIRE(bytes != std::vector<std::byte>(64));
}
