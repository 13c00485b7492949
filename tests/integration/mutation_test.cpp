// SPDX-License-Identifier: MIT
// tests/integration/mutation_test.cpp - tests of the theorem tests: synchronisations with one mistake each, every
// one of which must fail at least one theorem (or be refused by the shipped code) with a message that points at it.
// Always two thread ranks: a mutant may end in a hang, which the group's short time-out then ends.
// Read before: tests/support/theorems.h, tests/support/bare_ddp.h, tests/support/mutants.h.
#include <algorithm>
#include <array>

#include "dist/launch.h"
#include "dist/plan_makers.h"
#include "dist/scale.h"
#include "dist/strategies/bucketed.h"
#include "nn/linear.h"
#include "tests/support/bare_ddp.h"
#include "tests/support/mutants.h"
#include "tests/support/ranks.h"
#include "tests/support/skip.h"
#include "tests/support/test.h"
#include "tests/support/theorems.h"
#include "tests/support/training.h"

using namespace brigade;
using namespace brigade::dist;
using test::BareDdp;
using test::BareParts;

namespace {

// toy_mlp with a layer that takes no part.
class HalfIdle final : public nn::Module {
 public:
  explicit HalfIdle(std::uint64_t seed) : mlp_(test::toy_mlp(seed)) {
    register_module("mlp", *mlp_);
    register_module("idle", idle_);
  }
  Variable forward(const Variable& x) override { return (*mlp_)(x); }

 private:
  std::unique_ptr<nn::Module> mlp_;
  nn::Linear idle_{3, 2};
};
std::unique_ptr<nn::Module> half_idle(std::uint64_t seed) { return std::make_unique<HalfIdle>(seed); }

const test::Subject kSubject{"mlp with an idle layer", half_idle, {16}};

// Buckets of one parameter; the last and largest, of 16 x 32 elements, travels in two equal parts.
BucketPlan make_plan(const std::vector<ParameterInfo>& infos) {
  BucketPlan plan = plan_per_parameter(infos, make_order("reverse", infos));
  BucketSpec& part = plan.buckets.back();
  part.bytes = 4 * 256;
  part.part = {0, 256};
  plan.buckets.push_back(part);
  plan.buckets.back().part = {256, 512};
  return plan;
}

// Glue with one mistake each.

// The emulated network moves bytes first and then takes its time, so that the bytes of the first bucket that nobody
// waits for move at once: only those of the second are late for certain.
class OmitsLastWaits : public BareDdp {
 public:
  using BareDdp::BareDdp;
  void wait() override {
    for (int b = 0; b + 2 < reducer().bucket_count(); ++b) reducer().wait(b);
  }
};

class TakesUsedForUnused : public BareDdp {
 public:
  using BareDdp::BareDdp;
  void begin(const std::vector<bool>& used, double weight) override {
    std::vector<bool> wrong = used;
    if (group_.rank() == 1) *std::find(wrong.begin(), wrong.end(), true) = false;
    BareDdp::begin(wrong, weight);
  }
};

class TakesUnusedForUsed : public BareDdp {
 public:
  using BareDdp::BareDdp;
  void begin(const std::vector<bool>& used, double weight) override {
    BareDdp::begin(std::vector<bool>(used.size(), true), weight);
  }
};

class DropsGradientOnOneRank : public BareDdp {
 public:
  using BareDdp::BareDdp;
  void finish() override {
    BareDdp::finish();
    Variable last = parameters().at(parameters().count() - 1).variable;
    if (group_.rank() == 1) last.set_grad_present(false);
  }
};

// Another plan from the third step on. `Late` says how rank 1 fails to follow.
enum class Late : std::uint8_t { follows, keeps_plan, keeps_buckets };
template <Late kLate>
class ChangesPlan : public BareDdp {
 public:
  using BareDdp::BareDdp;
  void begin(const std::vector<bool>& used, double weight) override {
    if (ledger().steps_recorded() == 2) change();
    BareDdp::begin(used, weight);
  }

 private:
  void change() {
    BucketSpec all{.range = parameters().all()};
    for (const BucketSpec& bucket : plan().buckets) all.bytes += bucket.bytes;
    const BucketPlan next{.rule = "one bucket", .order = plan().order, .buckets = {all}};
    if (group_.rank() == 0 || kLate == Late::follows) return use_plan(next);
    // The roll call announces the new plan all the same.
    if (kLate == Late::keeps_buckets)
      texts_ = std::make_shared<const RollCallTexts>(describe_calls("bare", next, parameters()));
  }
};

// Hooks with one mistake each.

class DividesTwice final : public CommHook {
 public:
  explicit DividesTwice(std::unique_ptr<CommHook> inner) : inner_(std::move(inner)) {}
  HookReport mean(HookBucket& bucket, Transport& transport) override {
    const HookReport report = inner_->mean(bucket, transport);
    scale(bucket.gradients, 1.0 / transport.size());
    return report;
  }

 private:
  std::unique_ptr<CommHook> inner_;
};

class NeverDivides final : public CommHook {
 public:
  HookReport mean(HookBucket& bucket, Transport& transport) override {
    transport.all_reduce(bucket.gradients, Reduce::sum);
    return {};
  }
};

class NeverReduces final : public CommHook {
 public:
  HookReport mean(HookBucket&, Transport&) override { return {}; }
};

// Ways to build a synchronisation of these pieces.

template <class Sync>
std::unique_ptr<GradSync> make(BucketReducer& reducer) {
  return std::make_unique<Sync>(reducer);
}

template <class Ddp>
test::Synchronise glue(const BareParts& parts = {.sync = make<BucketedSync>}) {
  return [parts](const nn::Module& model, ProcessGroup& group) {
    const auto parameters = model.named_parameters();
    auto ddp = std::make_shared<Ddp>(group, parameters, make_plan(test::bare_infos(parameters)), parts);
    for (const auto& p : parameters) Variable(p.variable).set_observer(ddp);
    optim::FlatParameters* const flat = &ddp->parameters();
    return test::Synchronised{std::move(ddp), flat};
  };
}

enum class On : std::uint8_t { all_ranks, rank_1 };
template <class Mistake>
test::Synchronise strategy(On where) {
  return [where](const nn::Module& model, ProcessGroup& group) {
    const bool here = where == On::all_ranks || group.rank() == 1;
    return glue<BareDdp>({.sync = here ? make<test::WrongCursor<Mistake>> : make<BucketedSync>})(model,
                                                                                                 group);
  };
}

template <class Hook>
test::Synchronise hook() {
  return glue<BareDdp>({.sync = make<BucketedSync>,
                        .hook = [](const optim::FlatParameters&) { return std::make_unique<Hook>(); }});
}
template <>
test::Synchronise hook<DividesTwice>() {
  return glue<BareDdp>({.sync = make<BucketedSync>, .hook = [](const optim::FlatParameters& parameters) {
                          return std::make_unique<DividesTwice>(make_comm_hook("none", parameters));
                        }});
}

// What each theorem says about a synchronisation; "" if it holds. `latency_s` is that of the emulated network.
std::vector<std::string> judge(const test::Synchronise& synchronise, double latency_s = 0) {
  LaunchOptions world{.backend = "threads", .ranks = 2, .group = {.timeout = std::chrono::seconds(2)}};
  world.network.emplace().links = {{0, {latency_s, 1e9}}};
  const auto reference = test::with_ddp({.strategy = "naive", .unused = UnusedParameters::zero});
  const auto verdict = [&](const std::function<void(ProcessGroup&)>& theorem) {
    return test::thrown_by([&] { run_ranks(world, theorem); });
  };
  return {
      verdict([&](ProcessGroup& g) { test::require_serial_result(kSubject, g, synchronise, "theorem 1"); }),
      verdict([&](ProcessGroup& g) { test::require_equal_ranks(kSubject, g, synchronise, "theorem 2"); }),
      verdict([&](ProcessGroup& g) {
        test::require_same_gradient(kSubject, g, synchronise, reference, true, "theorem 3");
      })};
}

// What the three theorems say about most mutants.
using Messages = std::array<const char*, 3>;
constexpr Messages kWrong{"theorem 1: not the result of one rank on the whole batch",
                          "theorem 2: ranks hold different bits", "theorem 3: not the bits of the reference"};
constexpr Messages kWrongAlike{kWrong[0], "", kWrong[2]};  // On all ranks.
constexpr Messages refused(const char* message) { return {message, message, message}; }
constexpr Messages kSizes = refused("the ranks came with tensors of different sizes");

// Some mutants are data races, which ThreadSanitizer would report. GCC tells of it by a macro, clang by a feature.
#if defined(__SANITIZE_THREAD__)
constexpr bool kRacesMayRun = false;
#elif defined(__has_feature)
constexpr bool kRacesMayRun = !__has_feature(thread_sanitizer);
#else
constexpr bool kRacesMayRun = true;
#endif

}  // namespace

TEST_CASE("synchronisations without a mistake pass the theorems: Ddp, and what mutants are made of",
          "[integration][mutation]") {
  const test::Synchronise sound[] = {test::with_ddp({.unused = UnusedParameters::zero}), glue<BareDdp>(),
                                     strategy<test::InOrder>(On::all_ranks),
                                     glue<ChangesPlan<Late::follows>>()};
  for (const test::Synchronise& synchronise : sound)
    for (const double latency_s : {0.0, 1e-3})
      for (const std::string& failure : judge(synchronise, latency_s)) REQUIRE(failure == "");
}

TEST_CASE("each mistake in the synchronisation fails a theorem or is refused", "[integration][mutation]") {
  const struct {
    const char* name;
    test::Synchronise synchronise;
    Messages expected;  // By theorem; "": it holds all the same.
    bool races = false;
  } mutants[] = {
      {"drops the last bucket", strategy<test::ForgetsLast>(On::all_ranks),
       refused("is waited for, but was never launched")},
      {"never launches the bucket that comes last on one rank", strategy<test::ForgetsLast>(On::rank_1),
       refused("is waited for, but was never launched")},
      {"swaps two launches on one rank", strategy<test::SwapsLastTwo>(On::rank_1), kWrong},
      {"does not look whether buckets are complete", strategy<test::DoesNotLook>(On::all_ranks),
       refused("was launched with 1 gradients missing")},
      {"divides twice", hook<DividesTwice>(), kWrongAlike},
      {"never divides", hook<NeverDivides>(), kWrongAlike},
      {"never reduces", hook<NeverReduces>(), kWrong},
      {"takes a used parameter for unused", glue<TakesUsedForUnused>(), refused("became ready twice"), true},
      {"takes an unused parameter for used", glue<TakesUnusedForUsed>(),
       refused("backward ended, but bucket 0 (idle.bias) is not complete")},
      {"loses a gradient on one rank", glue<DropsGradientOnOneRank>(), kWrong},
      {"keeps the old plan on one rank", glue<ChangesPlan<Late::keeps_plan>>(),
       refused("the ranks are about to call different things")},
      {"announces the new plan, keeps the old buckets", glue<ChangesPlan<Late::keeps_buckets>>(), kSizes},
  };
  for (const auto& mutant : mutants) {
    if (mutant.races && !kRacesMayRun) continue;
    const std::vector<std::string> failures = judge(mutant.synchronise);
    int failed = 0;
    for (std::size_t i = 0; i < failures.size(); ++i) {
      INFO(mutant.name << ", theorem " << i + 1 << ": expected \"" << mutant.expected[i] << "\"");
      if (std::string(mutant.expected[i]).empty()) {
        CHECK(failures[i] == "");
      } else {
        CHECK_THAT(failures[i], ContainsSubstring(mutant.expected[i]));
        ++failed;
      }
    }
    INFO(mutant.name);
    CHECK(failed > 0);
  }
}

TEST_CASE("waits that are left out fail the theorems on a slow network", "[integration][mutation]") {
  if (!kRacesMayRun) return test::skip("the mutant is a data race, which the sanitizer would report");
  const std::vector<std::string> failures = judge(glue<OmitsLastWaits>(), 3e-3);
  for (std::size_t i = 0; i < failures.size(); ++i) REQUIRE_THAT(failures[i], ContainsSubstring(kWrong[i]));
}
