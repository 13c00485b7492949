// SPDX-License-Identifier: MIT
// dist/checkpoint/manifest.h - what a checkpoint says of itself: manifest.json. Read next:
// dist/checkpoint/checkpoint_folder.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/durable_file.h"
#include "core/rng.h"

namespace brigade::dist {

struct CheckpointFile {
  std::string name;  ///< In the checkpoint's directory; never a path.
  FileDigest digest;
};

struct Manifest {
  std::int64_t step = 0;             ///< Optimizer steps done.
  int world_size = 1;                ///< Ranks that saved.
  std::int64_t optimizer_steps = 0;  ///< optim::Optimizer::steps()
  std::optional<double> score;       ///< Of an evaluation of exactly this state; the best one is kept longer.
  std::vector<Generator> generators = {};  ///< By rank.
  std::string bucket_plan = "null";        ///< JSON: plan_to_json().
  std::string run = "null";  ///< JSON, of the program: flags, sampler position, schedule, versions.
  std::vector<CheckpointFile> files = {};
};

std::string manifest_to_json(const Manifest& manifest);
/// Takes text from anywhere. Throws Error, one line with the rule, for whatever is no manifest.
Manifest manifest_from_json(const std::string& text);

}  // namespace brigade::dist
