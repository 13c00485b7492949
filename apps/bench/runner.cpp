// SPDX-License-Identifier: MIT
// apps/bench/runner.cpp - see the header.
#include "apps/bench/runner.h"

#include <utility>

#include "autograd/engine.h"

namespace brigade::apps {
namespace {

SubjectOptions of_rank(SubjectOptions options, const dist::ProcessGroup& group) {
  options.rank = group.rank();
  options.size = group.size();
  return options;
}

}  // namespace

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
