// SPDX-License-Identifier: MIT
// apps/bench/runner.cpp - see the header.
#include "apps/bench/runner.h"

#include <CLI/CLI.hpp>
#include <utility>

#include "autograd/engine.h"
#include "models/catalog.h"

namespace brigade::apps {
namespace {

SubjectOptions of_rank(SubjectOptions options, const dist::ProcessGroup& group) {
  options.rank = group.rank();
  options.size = group.size();
  return options;
}

}  // namespace

SubjectOptions ComparisonOptions::subject() const {
  return {
      .model = model, .precision = precision == "bf16" ? DType::bf16 : DType::f32, .batch_size = batch_size};
}

void add_comparison_flags(CLI::App& app, ComparisonOptions& o, int least_steps) {
  std::vector<std::string_view> models = models::model_names();
  models.push_back("gpt");
  app.add_option("--ranks", o.ranks, "Threads of this process; under mpirun the launcher decides")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--batch-size", o.batch_size, "Images (or sequences) per rank")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--steps", o.steps, "Measured steps of each")
      ->check(CLI::Range(least_steps, 100000))
      ->capture_default_str();
  app.add_option("--warmup", o.warmup, "Steps before; the planner needs about ten")
      ->check(CLI::Range(0, 100000))
      ->capture_default_str();
  app.add_option("--model", o.model, "Network")
      ->check(CLI::IsMember(std::vector<std::string>(models.begin(), models.end())))
      ->capture_default_str();
  app.add_option("--precision", o.precision, "f32 or bf16")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->capture_default_str();
}

Runner::Runner(const Candidate& candidate, SubjectOptions subject, dist::ProcessGroup& group)
    : candidate_(candidate),
      subject_(make_subject(of_rank(std::move(subject), group))),
      ddp_(subject_.model->named_parameters(), subject_.model->named_buffers(), group, candidate_.options),
      optimizer_(ddp_.parameters(), kLearningRate, {.momentum = 0.9}) {
  ddp_.ledger().timeline().set_layers(subject_.model->number_layers());
}

StepTimes Runner::step() {
  StepTimes times;
  ddp_.group().barrier().wait();
  const auto begin = Clock::now();
  {
    const dist::StepScope recorded(ddp_.ledger());
    ddp_.parameters().zero_grad();
    Variable loss = subject_.loss();
    times.loss = loss.item();
    const auto backward_begin = Clock::now();
    if (candidate_.synchronise) {
      backward(loss);
    } else {
      const auto local = ddp_.no_sync();
      backward(loss);
    }
    times.backward_ms = dist::milliseconds(Clock::now() - backward_begin);
    optimizer_.step();
  }
  ddp_.group().barrier().wait();
  times.step_ms = dist::milliseconds(Clock::now() - begin);
  return times;
}

}  // namespace brigade::apps
