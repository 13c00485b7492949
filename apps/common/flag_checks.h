// SPDX-License-Identifier: MIT
// apps/common/flag_checks.h - checks and help texts of flags, for all programs.
#pragma once

#include <CLI/CLI.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "core/check.h"

namespace brigade::apps {

/// The choices of an option, from the name table that the code itself uses.
template <class Names>
CLI::IsMember one_of(const Names& names) {
  return CLI::IsMember(std::vector<std::string>(names.begin(), names.end()));
}

/// CLI11's own checks name the largest double in digits.
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

/// A line a choice, under `what`.
template <class Table>
std::string table_help(std::string_view what, const Table& table) {
  std::string help(what);
  for (const auto& entry : table) help += str("\n    ", entry.name, ": ", entry.description);
  return help;
}

}  // namespace brigade::apps
