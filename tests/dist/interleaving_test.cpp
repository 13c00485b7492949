// SPDX-License-Identifier: MIT
// tests/dist/interleaving_test.cpp - whatever the order of events on two ranks, the scheduler's promises hold: no
// deadlock, the same sequence of collectives, each bucket once and only when complete, launched as soon as that is
// possible, the right mean, and ordered time stamps. Read before: tests/dist/interleaving.h.
//
// Minimal numbers of runs are the exact ones, counted by a separate program that knows only the rules (dynamic
// programming over begun, ready, launched, executed and finished): if a change lets fewer happen, it must say why.
#include "tests/dist/interleaving.h"

#include "dist/plan_makers.h"
#include "dist/strategies/bucketed.h"
#include "tests/support/mutants.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::dist;
using test::Cover;
using test::Coverage;
using test::Interleaving;
using test::Scenario;

namespace {

// Buckets end before the positions `ends`.
Scenario scenario(const std::vector<std::int64_t>& sizes, const std::vector<std::int32_t>& ends) {
  const auto infos = test::bare_infos(test::bare_parameters(sizes));
  return {.sizes = sizes, .plan = plan_from_ends(infos, make_order("forward", infos), ends, "by hand")};
}

// Tensors of over `cap` elements travel in parts.
Scenario split_scenario(const std::vector<std::int64_t>& sizes, std::int64_t cap) {
  const auto infos = test::bare_infos(test::bare_parameters(sizes));
  const BucketCaps caps{.list = {static_cast<double>(4 * cap)}};
  return {.sizes = sizes, .plan = plan_by_size(infos, make_order("forward", infos), caps, Oversize::split)};
}

template <class Sync>
std::unique_ptr<GradSync> make(BucketReducer& reducer) {
  return std::make_unique<Sync>(reducer);
}

void report(const std::string& what, const Coverage& coverage) {
  UNSCOPED_INFO(what << ": " << coverage.runs << " runs of " << coverage.moves << " moves, "
                     << coverage.states << " states");
}

Coverage explore(const Scenario& what, Cover cover) {
  Interleaving world(what, make<BucketedSync>);
  return test::explore(world, cover);
}

// Every pair of sets of parameters that the two ranks' backwards do not touch.
Coverage explore_unused(const Scenario& what, Cover cover) {
  Interleaving world(what, make<BucketedSync>);
  Coverage sum;
  const unsigned sets = 1U << what.sizes.size();
  for (unsigned i = 0; i < sets * sets; ++i) {
    const Coverage one = test::explore(world, cover, {i / sets, i % sets});
    sum.runs += one.runs;
    sum.moves += one.moves;
    sum.states += one.states;
  }
  return sum;
}

}  // namespace

TEST_CASE("three buckets of one parameter: the promises hold in every run, whatever is unused on either rank",
          "[dist][interleaving]") {
  const Coverage coverage = explore_unused(scenario({3, 1, 2}, {1, 2, 3}), Cover::every_run);
  report("3 buckets x 1 parameter, any unused", coverage);
  REQUIRE(coverage.runs >= 178'444);
}

TEST_CASE("buckets of one and two parameters: the promises hold in every run", "[dist][interleaving]") {
  const Coverage one_two = explore(scenario({3, 1, 2}, {1, 3}), Cover::every_run),
                 two_one = explore(scenario({3, 1, 2}, {2, 3}), Cover::every_run);
  report("buckets of 1 and 2 parameters", one_two);
  report("buckets of 2 and 1 parameters", two_one);
  REQUIRE(one_two.runs >= 63'360);
  REQUIRE(two_one.runs >= 42'768);
}

TEST_CASE("a tensor split over buckets: the promises hold in every run", "[dist][interleaving]") {
  const Scenario first = split_scenario({32, 5}, 16), last = split_scenario({5, 32}, 16);
  REQUIRE(first.plan.buckets.size() == 3);
  REQUIRE(first.plan.buckets[1].is_part());
  REQUIRE(last.plan.buckets[1].is_part());
  const Coverage split_first = explore_unused(first, Cover::every_run),
                 split_last = explore_unused(last, Cover::every_run);
  report("split tensor first, any unused", split_first);
  report("split tensor last, any unused", split_last);
  REQUIRE(split_first.runs >= 2'956);
  REQUIRE(split_last.runs >= 2'184);
}

TEST_CASE("waits that end one by one: the promises hold in every run", "[dist][interleaving]") {
  Scenario what = scenario({3, 2}, {1, 2});
  what.waits_apart = true;
  const Coverage coverage = explore(what, Cover::every_run);
  report("2 buckets x 1 parameter, waits apart", coverage);
  REQUIRE(coverage.runs >= 30'416);
}

TEST_CASE("two and three buckets of two parameters: the promises hold after every move in every state",
          "[dist][interleaving]") {
  const Coverage two = explore(scenario({3, 1, 2, 4}, {2, 4}), Cover::every_move),
                 three = explore(scenario({3, 1, 2, 4, 5, 1}, {2, 4, 6}), Cover::every_move);
  report("2 buckets x 2 parameters", two);
  report("3 buckets x 2 parameters", three);
  REQUIRE((two.states >= 564 && two.runs >= 1'892));
  REQUIRE((three.states >= 8'596 && three.runs >= 46'500));
}

TEST_CASE(
    "a rank that begins the next step while its peer is in the last: the promises hold after every move",
    "[dist][interleaving]") {
  Scenario what = scenario({3, 1, 2}, {1, 2, 3});
  what.steps = 2;
  what.waits_apart = true;
  const Coverage coverage = explore(what, Cover::every_move);
  report("3 buckets x 1 parameter, 2 steps, waits apart", coverage);
  REQUIRE((coverage.states >= 484 && coverage.runs >= 961));
}

TEST_CASE("the explorer finds each mistake of a strategy", "[dist][interleaving][mutation]") {
  const Scenario what = scenario({3, 1, 2}, {1, 2, 3});
  int made = 0;
  const Interleaving::MakeSync one_too_many_on_rank_0 = [&](BucketReducer& reducer) {
    return made++ % 2 == 0 ? make<test::WrongCursor<test::LaunchesLastTwice>>(reducer)
                           : make<BucketedSync>(reducer);
  };
  const struct {
    Interleaving::MakeSync make;
    const char* message;
  } mutants[] = {
      // The ranks' gradients become ready in different orders: what the cursor in plan order is for.
      {make<test::CompletionOrder>,
       "the ranks run different collectives: bucket 1 on rank 0, bucket 2 on rank 1"},
      {make<test::WrongCursor<test::ForgetsLast>>, "has launched 3 collectives; it could have launched 4"},
      {make<test::WrongCursor<test::LaunchesLastTwice>>, "was launched twice"},
      {one_too_many_on_rank_0, "was launched twice"},
      {make<test::WrongCursor<test::SwapsLastTwo>>, "has launched 2 collectives; it could have launched 3"},
      {make<test::WrongCursor<test::DoesNotLook>>, "was launched with 1 gradients missing"},
      {make<test::WrongCursor<test::WaitsForAll>>, "has launched 1 collectives; it could have launched 2"},
  };
  for (const auto& mutant : mutants)
    for (const Cover cover : {Cover::every_run, Cover::every_move}) {
      Interleaving world(what, mutant.make);
      REQUIRE_THROWS_WITH(test::explore(world, cover), ContainsSubstring(mutant.message));
    }
}
