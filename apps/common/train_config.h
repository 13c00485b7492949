// SPDX-License-Identifier: MIT
// apps/common/train_config.h - values of flags that do not stand on the command line: from a file and the environment.
// Flags come before $BRIGADE_* variables, these before the file, the file before defaults. Read before:
// apps/common/train_flags.h.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

namespace brigade::apps {

/// What a program was told, from all sources.
struct Settings {
  /// A command line that says the same: what file and environment add, then the flags as given.
  std::vector<std::string> arguments;
  std::map<std::string, std::string>
      sources;  ///< By flag, "--lr": the variable or the file it has its value from.
  std::vector<std::string>
      unknown_variables;  ///< Those that begin with BRIGADE_ and mean nothing to anybody.
};

/// Looks for --config (or $BRIGADE_CONFIG) and for variables of the flags of `app` that may stand in a file
/// (CLI::Option::configurable): --batch-size is batch-size or batch_size there, and BRIGADE_BATCH_SIZE. Throws
/// CLI::ParseError naming file or variable, key and choices.
Settings gather_settings(const CLI::App& app, int argc, const char* const* argv);

/// `message` about flags, with the sources of those that it names: who never wrote --lr wonders where to look.
std::string with_sources(const std::string& message, const Settings& settings);

/// TOML that --config reads back to the same values, from an app that has been parsed. Throws CLI::ParseError for a
/// value that such a file cannot carry.
std::string config_text(const CLI::App& app, const Settings& settings);

/// A script for bash, which completes the flags of `app`, their choices and paths.
std::string bash_completion(const CLI::App& app);

}  // namespace brigade::apps
