// SPDX-License-Identifier: MIT
// dist/clock_sync.cpp - see the header.
#include "dist/clock_sync.h"

namespace brigade::dist {
namespace {

Tensor message() { return Tensor::zeros({1}, DType::i64); }

// Rank 0's side: the time, as often as somebody asks.
void answer(Transport& transport, int rank, int rounds, const std::function<Clock::time_point()>& now) {
  Tensor question = message(), reading = message();
  for (int round = 0; round < rounds; ++round) {
    transport.recv(question, rank);
    *reading.data<std::int64_t>() = now().time_since_epoch().count();
    transport.send(reading, rank);
  }
}

ClockOffset ask(Transport& transport, int rounds, const std::function<Clock::time_point()>& now) {
  ClockOffset best{.error = Clock::duration::max()};
  const Tensor question = message();
  Tensor reading = message();
  for (int round = 0; round < rounds; ++round) {
    const Clock::time_point asked = now();
    transport.send(question, 0);
    transport.recv(reading, 0);
    const Clock::time_point back = now();
    const Clock::duration half = (back - asked) / 2;
    if (half >= best.error) continue;
    const Clock::time_point theirs{Clock::duration(*reading.data<std::int64_t>())};
    best = {.offset = theirs - (asked + half), .error = half, .measured = back};
  }
  if (best.offset <= best.error && best.offset >= -best.error) best.offset = {};
  return best;
}

}  // namespace

Clock::duration ClockOffset::error_at(Clock::time_point ours) const {
  const Clock::duration age = ours > measured ? ours - measured : measured - ours;
  return error + std::chrono::duration_cast<Clock::duration>(kDrift * age);
}

ClockOffset measure_clock(Transport& transport, int rounds, const std::function<Clock::time_point()>& now) {
  BRIGADE_CHECK(rounds > 0, "measure_clock: needs at least one round; got ", rounds);
  if (transport.rank() > 0) return ask(transport, rounds, now);
  // One after another: a rank that waits for its turn does not disturb the one that measures.
  for (int rank = 1; rank < transport.size(); ++rank) answer(transport, rank, rounds, now);
  return {.measured = now()};
}

}  // namespace brigade::dist
