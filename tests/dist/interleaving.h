// SPDX-License-Identifier: MIT
// tests/dist/interleaving.h - a small model checker for the bucket scheduler: the real BucketReducer, strategy and
// ProcessGroup of two ranks, driven through every order in which their gradients, collectives and waits can happen.
// Read before: tests/dist/lockstep.h, tests/support/bare_ddp.h. Read next: tests/dist/interleaving_test.cpp.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/dist/lockstep.h"
#include "tests/support/bare_ddp.h"

namespace brigade::test {

/// What two ranks do.
struct Scenario {
  std::vector<std::int64_t> sizes;  ///< Elements of each parameter.
  dist::BucketPlan plan;            ///< In the order of `sizes`.
  int steps = 1;                    ///< A rank may begin the next one while the other is in the last.
  bool waits_apart = false;         ///< Each wait for a bucket is a move of its own.
};

/// One thing that can happen next.
struct Move {
  enum class Kind : std::uint8_t {
    begin,   ///< The rank's backward begins.
    ready,   ///< Its gradient `position` becomes ready.
    wait,    ///< It looks at bucket `position`, which is done.
    finish,  ///< It has waited for all its buckets, which are done.
    wire,    ///< Both ranks' streams run their next collective; `rank` comes first.
  } kind;
  int rank = 0, position = 0;
  std::string text() const;
};

/// Two ranks, from the first begin to the last finish, again and again. Every method throws Error when a property of
/// the scheduler is violated.
class Interleaving {
 public:
  using MakeSync = std::function<std::unique_ptr<dist::GradSync>(dist::BucketReducer&)>;
  /// `make_sync` is called for rank 0, then for rank 1.
  Interleaving(const Scenario& scenario, const MakeSync& make_sync);
  ~Interleaving();
  Interleaving(const Interleaving&) = delete;
  Interleaving& operator=(const Interleaving&) = delete;

  /// Everything from the start; `unused[rank]`: bits of positions that the rank's backwards do not touch. The last run
  /// must be over.
  void restart(const std::array<unsigned, 2>& unused);
  bool over() const;
  /// Throws if there is none although the run is not over: a deadlock.
  const std::vector<Move>& possible();
  void apply(const Move& move);
  /// What decides how the run can go on, as a number.
  std::uint64_t state() const;

 private:
  struct Rank {
    std::unique_ptr<dist::ProcessGroup> group;
    std::unique_ptr<BareDdp> ddp;
    std::vector<Wire::Call> buckets;  // What a call for each bucket looks like.
    unsigned unused = 0, ready = 0;   // By position.
    bool begun = false;
    int steps = 0;                 // Finished.
    int waits = 0;                 // Of this step.
    std::int64_t launched = 0;     // Submitted before this step.
    std::int64_t calls_begin = 0;  // Of the wire's log, at the start of this step.
  };
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  std::int64_t calls_done(int rank) const;
  int bucket_of(int rank, const Wire::Call& call) const;
  unsigned needed(int bucket) const;
  float gradient(int rank, int position, std::int64_t element, std::int64_t step) const;
  void begin(int rank);
  void write_gradient(int rank, int position);
  void run_wire(int first);
  void check_launches(int rank);
  void check_finished(int rank);

  const Scenario scenario_;
  const unsigned all_;  // Bits of all positions.
  std::shared_ptr<Wire> wire_ = std::make_shared<Wire>();
  std::array<Rank, 2> ranks_;
  std::vector<Move> possible_;
};

/// How far explore() goes.
enum class Cover : std::uint8_t {
  every_run,   ///< Every sequence of moves from start to end.
  every_move,  ///< Every possible move in every state that can be reached, each in some complete run.
};

struct Coverage {
  std::int64_t runs = 0, moves = 0, states = 0;
};

/// Depth first, each run replayed from the start. Throws Error with the property that is violated, and the moves of
/// that run.
Coverage explore(Interleaving& world, Cover cover, const std::array<unsigned, 2>& unused = {});

}  // namespace brigade::test
