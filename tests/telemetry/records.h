// SPDX-License-Identifier: MIT
// tests/telemetry/records.h - steps that nobody took, with times that are easy to recognise.
#pragma once

#include "dist/ledger_gather.h"

namespace brigade::test {

inline Clock::time_point at_us(double us) {
  return Clock::time_point(
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::micro>(us)));
}

/// A step of 1,000 us that begins at 10,000 * step us on rank 0: forward until 300, backward until 800, two buckets of
/// 4,000 and 8,000 bytes on the wire from 500 to 600 and from 750 to 900. Each rank is 10 us later than the one before.
inline dist::StepRecord step_record(std::int64_t step, int rank = 0) {
  const double begin = 10'000.0 * static_cast<double>(step) + 10.0 * rank;
  const auto t = [begin](double us) { return at_us(begin + us); };
  dist::StepRecord record;
  record.step = step;
  record.whole = {t(0), t(1000)};
  record.backward = {t(300), t(800)};
  record.buckets = {{.bucket = 0,
                     .bytes = 4000,
                     .parameters = 2,
                     .first_ready = t(350),
                     .last_ready = t(400),
                     .launch = t(410),
                     .start = t(500),
                     .end = t(600),
                     .wire_bytes = 4000},
                    {.bucket = 1,
                     .bytes = 8000,
                     .parameters = 3,
                     .first_ready = t(450),
                     .last_ready = t(700),
                     .launch = t(710),
                     .start = t(750),
                     .end = t(900),
                     .waited = std::chrono::microseconds(90),
                     .wire_bytes = 8000}};
  record.spans = {{.layer = -1, .depth = 0, .kind = SpanKind::data, .begin = t(5), .end = t(20)},
                  {.layer = 0, .depth = 0, .kind = SpanKind::forward, .begin = t(20), .end = t(300)},
                  {.layer = 1, .depth = 1, .kind = SpanKind::forward, .begin = t(30), .end = t(200)},
                  {.layer = -1, .depth = 0, .kind = SpanKind::backward, .begin = t(300), .end = t(800)},
                  {.layer = 1, .depth = 1, .kind = SpanKind::backward, .begin = t(600), .end = t(790)},
                  {.layer = -1, .depth = 0, .kind = SpanKind::optimizer, .begin = t(910), .end = t(990)}};
  return record;
}

inline dist::GatheredStep gathered_step(std::int64_t step, int ranks) {
  dist::GatheredStep out{.step = step, .ranks = {}};
  for (int rank = 0; rank < ranks; ++rank) out.ranks.push_back(step_record(step, rank));
  return out;
}

}  // namespace brigade::test
