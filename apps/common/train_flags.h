// SPDX-License-Identifier: MIT
// apps/common/train_flags.h - the flags of train_resnet18 by help group. Private to apps/common: the public face is
// apps/common/train_options.h.
#pragma once

#include <string>
#include <vector>

#include "apps/common/flag_checks.h"
#include "apps/common/train_options.h"

namespace brigade::apps {

/// Options, and what flags say before it is put into them.
struct Raw {
  TrainOptions options;
  std::string precision = "f32";
  std::string synthetic;  // "" for the bare flag.
  std::string trace_steps;
  std::string config, completion;
  bool print_config = false;
  bool started_again = false;  // --resume comes from launch --max-restarts, by way of $BRIGADE_RESUME.
  bool no_augment = false, no_shuffle = false, no_norm_decay = false;
};

/// The rules of --plan that need nothing but their name.
std::vector<dist::PlanRule> named_rules();

void add_config_flags(CLI::App& app, Raw& raw);
void add_data_flags(CLI::App& app, Raw& raw);
void add_model_flags(CLI::App& app, Raw& raw);
void add_optimisation_flags(CLI::App& app, Raw& raw);
void add_rank_flags(CLI::App& app, Raw& raw);
void add_sync_flags(CLI::App& app, Raw& raw);
void add_network_flags(CLI::App& app, Raw& raw);
void add_checkpoint_flags(CLI::App& app, Raw& raw);
void add_output_flags(CLI::App& app, Raw& raw);

}  // namespace brigade::apps
