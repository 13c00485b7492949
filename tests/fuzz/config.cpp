// SPDX-License-Identifier: MIT
// tests/fuzz/config.cpp - the file of --config for the flags of train_resnet18: a CLI::ParseError is the answer to bad
// ones, and what is accepted becomes words that CLI11 reads.
#include "apps/common/train_config.h"
#include "apps/common/train_flags.h"
#include "tests/fuzz/targets.h"

namespace brigade::fuzz {
namespace {

struct Flags {
  apps::Raw raw;
  CLI::App app;
  Flags() {
    for (const auto add :
         {apps::add_config_flags, apps::add_data_flags, apps::add_model_flags, apps::add_optimisation_flags,
          apps::add_rank_flags, apps::add_sync_flags, apps::add_network_flags, apps::add_output_flags})
      add(app, raw);
  }
};

}  // namespace

void config(std::string_view bytes) {
  static MemoryFile file;
  static Flags flags;
  file.hold(bytes);
  const char* const arguments[] = {"train_resnet18", "--config", file.path().c_str()};
  try {
    const apps::Settings settings = apps::gather_settings(flags.app, 3, arguments);
    for (const std::string& word : settings.arguments) require(!word.empty(), "a flag has a name");
  } catch (const CLI::ParseError& error) {
    require(std::string_view(error.what()).find('\n') == std::string_view::npos, "an error is one line");
  }
}

}  // namespace brigade::fuzz
