// SPDX-License-Identifier: MIT
// apps/common/train_flags.h - the flags of train_resnet18 by help group. Private to apps/common: the public face is
// apps/common/train_options.h.
#pragma once

#include <CLI/CLI.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "apps/common/train_options.h"

namespace brigade::apps {

/// Options, and what flags say before it is put into them.
struct Raw {
  TrainOptions options;
  std::string precision = "f32";
  std::string synthetic;  // "" for the bare flag.
  bool no_augment = false, no_shuffle = false, no_norm_decay = false;
};

/// The rules of --plan that need nothing but their name.
std::vector<dist::PlanRule> named_rules();

void add_data_flags(CLI::App& app, Raw& raw);
void add_model_flags(CLI::App& app, Raw& raw);
void add_optimisation_flags(CLI::App& app, Raw& raw);
void add_rank_flags(CLI::App& app, Raw& raw);
void add_sync_flags(CLI::App& app, Raw& raw);
void add_network_flags(CLI::App& app, Raw& raw);
void add_output_flags(CLI::App& app, Raw& raw);

// The choices of an option, from the name table that the code itself uses.
template <class Names>
CLI::IsMember one_of(const Names& names) {
  return CLI::IsMember(std::vector<std::string>(names.begin(), names.end()));
}

// CLI11's own checks name the largest double in digits.
inline CLI::Validator bounded(const char* name, const char* rule, bool (*holds)(double)) {
  return {[rule, holds](std::string& text) {
            double value = 0;
            return CLI::detail::lexical_cast(text, value) && holds(value)
                       ? std::string()
                       : str("must be ", rule, "; got ", text);
          },
          name};
}
inline CLI::Validator positive() {
  return bounded("POSITIVE", "a positive number",
                 [](double value) { return value > 0 && std::isfinite(value); });
}
inline CLI::Validator not_negative() {
  return bounded("NONNEGATIVE", "a number of at least 0",
                 [](double value) { return value >= 0 && std::isfinite(value); });
}

// A line a choice, under `what`.
template <class Table>
std::string table_help(std::string_view what, const Table& table) {
  std::string help(what);
  for (const auto& entry : table) help += str("\n    ", entry.name, ": ", entry.description);
  return help;
}

}  // namespace brigade::apps
