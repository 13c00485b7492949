// SPDX-License-Identifier: MIT
// apps/bench/runner.h - one way to synchronise, with a model of its own, step by step: whoever compares several lets
// their runners take turns. Read before: apps/bench/subject.h, dist/ddp.h.
#pragma once

#include <string>

#include "apps/bench/subject.h"
#include "dist/ddp.h"
#include "nn/optim/sgd.h"

namespace CLI {
class App;
}

namespace brigade::apps {

/// What users of programs that compare runners choose.
struct ComparisonOptions {
  std::string model = "resnet18", precision = "f32";
  std::int64_t batch_size = 16;
  int ranks = 2, steps = 20, warmup = 12;
  SubjectOptions subject() const;
};
void add_comparison_flags(CLI::App& app, ComparisonOptions& options, int least_steps);

struct Candidate {
  std::string name;
  dist::DdpOptions options = {};
  bool synchronise = true;
};

/// A step of one rank; it ends when the slowest rank has.
struct StepTimes {
  double step_ms = 0;
  double backward_ms = 0;  ///< With what the strategy waits for at its end.
  double loss = 0;         ///< Of this rank.
};

/// Model, Ddp and optimizer of one candidate; candidates do not share state. All ranks make the same calls.
class Runner {
 public:
  static constexpr double kLearningRate = 0.01;

  /// `subject`: rank and size are the group's. Collective.
  Runner(const Candidate& candidate, SubjectOptions subject, dist::ProcessGroup& group);

  /// Collective; blocks. Recorded in the ledger of ddp(), if it synchronises.
  StepTimes step();

  const Candidate& candidate() const { return candidate_; }
  nn::Module& model() { return *subject_.model; }
  dist::Ddp& ddp() { return ddp_; }

 private:
  Candidate candidate_;
  Subject subject_;
  dist::Ddp ddp_;
  optim::Sgd optimizer_;
};

}  // namespace brigade::apps
