// SPDX-License-Identifier: MIT
// tests/dist/interleaving.cpp - what can happen, what happens, and what must hold then.
#include "tests/dist/interleaving.h"

#include <cmath>
#include <unordered_set>

namespace brigade::test {
namespace {

constexpr double kWeights[] = {
    1, 3};                      // Ranks count differently: a bucket that runs without the roll call is wrong.
constexpr float kStale = 1e6F;  // In memory that has not been written in this step.

unsigned bit(int position) { return 1U << position; }

unsigned bits(optim::Range range) { return bit(range.end) - bit(range.begin); }

}  // namespace

std::string Move::text() const {
  switch (kind) {
    case Kind::begin:
      return str("rank ", rank, " begins");
    case Kind::ready:
      return str("rank ", rank, " gradient ", position);
    case Kind::wait:
      return str("rank ", rank, " sees bucket ", position);
    case Kind::finish:
      return str("rank ", rank, " finishes");
    case Kind::wire:
      return "collective";
  }
  return "";
}

Interleaving::Interleaving(const Scenario& scenario, const MakeSync& make_sync)
    : scenario_(scenario), all_(bits({0, static_cast<int>(scenario.sizes.size())})) {
  BRIGADE_CHECK(scenario.sizes.size() <= 8 && scenario.plan.buckets.size() < 4 && scenario.steps < 4,
                "interleaving: state() has room for 8 parameters, 3 buckets and 3 steps");
  for (int rank = 0; rank < 2; ++rank) {
    at(rank).group = std::make_unique<dist::ProcessGroup>(
        [this, rank] { return std::make_unique<WireTransport>(wire_, rank); },
        dist::GroupOptions{.timeout = std::chrono::seconds(1), .check_calls = false},
        wire_->shared_stream(rank));
    wire_->stream(rank).eager = false;
    // The verdict would block inside finish(); it is one more collective that no bucket depends on.
    at(rank).ddp = std::make_unique<BareDdp>(
        *at(rank).group, bare_parameters(scenario.sizes), scenario.plan,
        BareParts{.sync = make_sync, .reducer = {.look_for_non_finite = false, .norms = true}});
    for (const dist::BucketSpec& bucket : scenario.plan.buckets) {
      Tensor memory = at(rank).ddp->parameters().gradients(bucket.range);
      if (bucket.is_part()) memory = memory.slice(0, bucket.part.begin, bucket.part.end);
      at(rank).buckets.push_back({memory.raw(), memory.numel()});
    }
  }
}

Interleaving::~Interleaving() {
  for (int rank = 0; rank < 2; ++rank) wire_->stream(rank).drop();
}

void Interleaving::restart(const std::array<unsigned, 2>& unused) {
  wire_->forget_calls();
  for (int rank = 0; rank < 2; ++rank) {
    Rank& r = at(rank);
    r.unused = unused[static_cast<std::size_t>(rank)];
    r.begun = false;
    r.steps = 0;
  }
}

bool Interleaving::over() const {
  return ranks_[0].steps == scenario_.steps && ranks_[1].steps == scenario_.steps;
}

std::int64_t Interleaving::calls_done(int rank) const {
  return static_cast<std::int64_t>(wire_->calls(rank).size()) -
         ranks_[static_cast<std::size_t>(rank)].calls_begin;
}

const std::vector<Move>& Interleaving::possible() {
  using Kind = Move::Kind;
  possible_.clear();
  for (int rank = 0; rank < 2; ++rank) {
    const Rank& r = at(rank);
    if (r.steps == scenario_.steps) continue;
    if (!r.begun) {
      possible_.push_back({Kind::begin, rank});
      continue;
    }
    for (std::size_t i = 0; i < scenario_.sizes.size(); ++i)
      if ((r.ready & bit(static_cast<int>(i))) == 0)
        possible_.push_back({Kind::ready, rank, static_cast<int>(i)});
    if (r.ready != all_) continue;
    // Waiting itself changes nothing: a wait happens at the moment when it ends.
    const bool waited = !scenario_.waits_apart || r.waits == r.ddp->reducer().bucket_count();
    if (!waited && calls_done(rank) > 1 + r.waits) possible_.push_back({Kind::wait, rank, r.waits});
    if (waited && wire_->stream(rank).idle()) possible_.push_back({Kind::finish, rank});
  }
  // The ranks take turns in coming first.
  if (wire_->ready()) possible_.push_back({Kind::wire, static_cast<int>(wire_->calls(0).size() % 2)});
  if (possible_.empty() && !over()) fail("deadlock: nothing can happen any more");
  return possible_;
}

void Interleaving::apply(const Move& move) {
  Rank& r = at(move.rank);
  switch (move.kind) {
    case Move::Kind::begin:
      begin(move.rank);
      break;
    case Move::Kind::ready:
      write_gradient(move.rank, move.position);
      r.ready |= bit(move.position);
      wire_->stream(move.rank).mark = r.ready;
      r.ddp->ready(move.position);
      break;
    case Move::Kind::wait:
      r.ddp->reducer().wait(r.waits++);
      break;
    case Move::Kind::finish:
      r.ddp->finish();
      check_finished(move.rank);
      r.begun = false;
      ++r.steps;
      break;
    case Move::Kind::wire:
      run_wire(move.rank);
      break;
  }
  if (move.kind != Move::Kind::wire && r.begun) check_launches(move.rank);
}

// Both ranks: 2 bits of steps, 1 begun, 2 waits, 8 positions; and the number of collectives. What is launched follows
// from that (check_launches), as long as nothing is violated.
std::uint64_t Interleaving::state() const {
  std::uint64_t out = wire_->calls(0).size();
  for (const Rank& r : ranks_) {
    const unsigned begun = r.begun ? 1 : 0;
    out = out << 13 | static_cast<unsigned>(r.steps) << 11 | begun << 10 |
          (begun != 0 ? static_cast<unsigned>(r.waits) << 8 | r.ready : 0U);
  }
  return out;
}

void Interleaving::begin(int rank) {
  Rank& r = at(rank);
  r.begun = true;
  r.waits = 0;
  r.ready = r.unused;
  r.launched = wire_->stream(rank).submitted;
  r.calls_begin = static_cast<std::int64_t>(wire_->calls(rank).size());
  wire_->stream(rank).mark = r.ready;
  r.ddp->parameters().zero_grad();
  std::vector<bool> used;
  for (std::size_t i = 0; i < scenario_.sizes.size(); ++i) {
    const int position = static_cast<int>(i);
    used.push_back((r.unused & bit(position)) == 0);
    Tensor memory = r.ddp->parameters().at(position).variable.grad_memory();
    std::fill_n(memory.data<float>(), memory.numel(), kStale);
  }
  r.ddp->begin(used, kWeights[rank]);
}

// Multiples of 4 of moderate size: weighted means are exact. Different for each rank, position, element and step.
float Interleaving::gradient(int rank, int position, std::int64_t element, std::int64_t step) const {
  return static_cast<float>(4 * (step % 97 + 100 * (element % 30 + 30 * (position + 8 * rank))));
}

void Interleaving::write_gradient(int rank, int position) {
  Variable variable = at(rank).ddp->parameters().at(position).variable;
  Tensor memory = variable.grad_memory();
  float* const values = memory.data<float>();
  const std::int64_t step = at(rank).ddp->ledger().last().step;
  for (std::int64_t e = 0; e < memory.numel(); ++e) values[e] = gradient(rank, position, e, step);
  variable.set_grad_present(true);
}

// -1: not a bucket, hence the roll call.
int Interleaving::bucket_of(int rank, const Wire::Call& call) const {
  const std::vector<Wire::Call>& buckets = ranks_[static_cast<std::size_t>(rank)].buckets;
  for (std::size_t b = 0; b < buckets.size(); ++b)
    if (call.memory == buckets[b].memory && call.count == buckets[b].count) return static_cast<int>(b);
  return -1;
}

// Positions that must be ready before the bucket may travel.
unsigned Interleaving::needed(int bucket) const {
  return bucket < 0 ? 0 : bits(scenario_.plan.buckets[static_cast<std::size_t>(bucket)].range);
}

void Interleaving::run_wire(int first) {
  wire_->run(first);
  const Wire::Call &ours = wire_->calls(0).back(), &theirs = wire_->calls(1).back();
  const int bucket = bucket_of(0, ours), other = bucket_of(1, theirs);
  if (bucket != other)
    fail(str("the ranks run different collectives: bucket ", bucket, " on rank 0, bucket ", other,
             " on rank 1"));
  for (int rank = 0; rank < 2; ++rank)
    if ((needed(bucket) & ~static_cast<unsigned>(wire_->calls(rank).back().mark)) != 0)
      fail(str("rank ", rank, " launched bucket ", bucket, " before it was complete"));
}

// Nothing that could travel is held back: the roll call, and each bucket with nothing incomplete before it.
void Interleaving::check_launches(int rank) {
  const Rank& r = at(rank);
  std::int64_t expected = 1;
  for (const dist::BucketSpec& bucket : scenario_.plan.buckets) {
    if ((bits(bucket.range) & ~r.ready) != 0) break;
    ++expected;
  }
  const std::int64_t launched = wire_->stream(rank).submitted - r.launched;
  if (launched < expected)
    fail(str("rank ", rank, " has launched ", launched, " collectives; it could have launched ", expected));
}

void Interleaving::check_finished(int rank) {
  const Rank& r = at(rank);
  // Each bucket once.
  std::vector<int> times(scenario_.plan.buckets.size());
  const auto& calls = wire_->calls(rank);
  for (auto call = calls.begin() + r.calls_begin; call != calls.end(); ++call)
    if (const int bucket = bucket_of(rank, *call); bucket >= 0) ++times[static_cast<std::size_t>(bucket)];
  for (std::size_t b = 0; b < times.size(); ++b)
    if (times[b] != 1) fail(str("rank ", rank, " launched bucket ", b, " ", times[b], " times"));

  // The ledger's times are in order.
  const dist::StepRecord& record = r.ddp->ledger().last();
  if (record.buckets.size() != times.size()) fail("the ledger lacks a bucket");
  for (const dist::BucketRecord& b : record.buckets)
    if (!(b.first_ready <= b.last_ready && b.last_ready <= b.launch && b.launch <= b.start &&
          b.start <= b.end))
      fail(str("rank ", rank, ", bucket ", b.bucket, ": the ledger's times are out of order"));

  // Each gradient's norm is counted once, whatever bucket, or parts of it, it travels in.
  double squares = 0, recorded = 0;
  for (const double s : r.ddp->reducer().squares()) squares += s;
  for (const dist::BucketRecord& b : record.buckets) recorded += b.square_norm;
  if (std::abs(recorded - squares) > 1e-9 * squares)
    fail(str("rank ", rank, ": the ledger's square norms add up to ", recorded, ", the gradients' to ",
             squares));

  // The weighted mean, in which an unused gradient is zero.
  for (std::size_t i = 0; i < scenario_.sizes.size(); ++i) {
    const int position = static_cast<int>(i);
    const Tensor memory = r.ddp->parameters().at(position).variable.grad_memory();
    for (std::int64_t e = 0; e < memory.numel(); ++e) {
      double sum = 0;
      for (int peer = 0; peer < 2; ++peer)
        if ((at(peer).unused & bit(position)) == 0)
          sum += kWeights[peer] * gradient(peer, position, e, record.step);
      if (const double got = memory.data<float>()[e], mean = sum / (kWeights[0] + kWeights[1]); got != mean)
        fail(str("rank ", rank, ", gradient ", position, ", element ", e, ": expected the mean ", mean,
                 ", got ", got));
    }
  }
}

Coverage explore(Interleaving& world, Cover cover, const std::array<unsigned, 2>& unused) {
  Coverage coverage;
  struct Choice {
    std::size_t taken, of;
  };
  std::vector<Choice> choices;
  std::vector<Move> run;
  std::unordered_set<std::uint64_t> seen;
  do {
    run.clear();
    try {
      world.restart(unused);
      bool branching = true;  // Until a state that was seen before: from there on any end will do.
      for (std::size_t depth = 0; !world.over(); ++depth) {
        const std::vector<Move>& moves = world.possible();
        if (branching && depth == choices.size()) {
          branching = cover == Cover::every_run || seen.insert(world.state()).second;
          if (branching) choices.push_back({0, moves.size()});
        }
        run.push_back(moves[branching ? choices[depth].taken : 0]);
        world.apply(run.back());
      }
    } catch (const std::exception& e) {
      std::string text = str("after ", coverage.runs, " runs: ", e.what(), "; the run: ");
      for (std::size_t i = 0; i < run.size(); ++i) text += str(i > 0 ? ", " : "", run[i].text());
      throw Error(text);
    }
    ++coverage.runs;
    coverage.moves += static_cast<std::int64_t>(run.size());
    while (!choices.empty() && ++choices.back().taken == choices.back().of) choices.pop_back();
  } while (!choices.empty());
  coverage.states = static_cast<std::int64_t>(seen.size());
  return coverage;
}

}  // namespace brigade::test
