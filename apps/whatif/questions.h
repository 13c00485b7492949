// SPDX-License-Identifier: MIT
// apps/whatif/questions.h - from words to scenarios: which worlds are asked for, and how a run that was measured would
// have been asked for. Read before: dist/what_if.h, apps/telemetry/profile.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/telemetry/profile.h"
#include "dist/what_if.h"

namespace brigade::apps {

/// What the flags say. Empty lists: as recorded.
struct QuestionFlags {
  std::vector<int> ranks{1, 2, 4, 8, 16, 32, 64};
  std::vector<std::string> nets;  ///< "100gbit,5us"
  std::string in_host;            ///< "8:400gbit,1us"; empty: one level.
  std::vector<std::string> algorithms, strategies, plans;
  std::vector<std::int64_t> batch_sizes;
  int cores = 0;  ///< That all ranks share; 0: each has as much as the recorded one.
  std::optional<double> spread_percent, overhead_us;
};

/// A scenario in words, whatever the number of ranks.
struct Question {
  std::string text;  ///< "bucketed, plan auto, batch 32 a rank, 100gbit,5us, ring"
  std::int64_t images = 0;
  dist::Scenario scenario;
};

/// Every combination, but for strategies that have no choice of plans. Throws Error naming the flag.
std::vector<Question> ask(const QuestionFlags& flags, const telemetry::Profile& record);
/// The scenario of `question` with so many ranks.
dist::Scenario with_ranks(const Question& question, int ranks, const QuestionFlags& flags,
                          const telemetry::Profile& record);

/// The scenario that `run` was, as far as a prediction may know it. Throws Error if `record` cannot tell: another
/// model, or a network that it has not seen.
dist::Scenario scenario_of(const telemetry::Profile& run, const telemetry::Profile& record);

/// "1 Gbit/s, 50 us"
std::string link_text(const dist::Link& link);

}  // namespace brigade::apps
