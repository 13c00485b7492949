// SPDX-License-Identifier: MIT
// apps/telemetry/profile.h - profile.json of a run directory: what one rank did in a typical step, and on what, so that
// bin/whatif can ask how it would have been elsewhere. Written when a run ends. Read before: dist/step_profile.h.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "dist/ddp.h"
#include "dist/step_profile.h"

namespace brigade::telemetry {

/// What a program knows of its run and a ledger does not.
struct ProfileFacts {
  std::string model;
  std::string strategy = "bucketed";  ///< DdpOptions::strategy
  std::string plan = "auto";          ///< PlanOptions::rule; the path of a plan's file if it came from one.
  int threads = 1;                    ///< Compute threads of a rank.
  std::int64_t images = 0;            ///< Of a rank, in a step.
  std::string algorithm = "auto";
  std::optional<dist::NetworkModel> network = {};
  std::int64_t trailing_bytes = 0;  ///< StepProfile::trailing_bytes
};

/// A profile as a file holds it.
struct Profile {
  dist::StepProfile step;
  std::string model, strategy, plan;
  int threads = 1;
  int cores = 1;       ///< Of rank 0's host…
  int host_ranks = 1;  ///< … and ranks on it.
  /// Threads that compute for each core, at least 1: by how much ranks slowed each other down.
  double load() const;
};

/// Medians of what the ledger has of the last plan. Error if no step was recorded in a StepScope.
Profile take_profile(const dist::Ddp& ddp, const ProfileFacts& facts);

std::string profile_to_json(const Profile& profile);
/// Its inverse, of text from anywhere: Error naming `where` and the rule for whatever is no profile.
Profile profile_from_json(const std::string& text, const std::string& where);

/// `directory`/profile.json, complete or not there.
void write_profile(const std::filesystem::path& directory, const Profile& profile);
/// Error naming the path if it is not there or none.
Profile read_profile(const std::filesystem::path& directory);

}  // namespace brigade::telemetry
