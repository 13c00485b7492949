// SPDX-License-Identifier: MIT
// dist/checkpoint/checkpoint_folder.h - a folder of checkpoints, as one rank sees it:
//
//   step_000123/       model.safetensors  optimizer.safetensors  ema.safetensors  rank_0000.safetensors …
//                      manifest.json (sizes and XXH3-128 of those)  COMPLETE (XXH3-128 of the manifest, written last)
//   step_000200.partial/   being written, or left by a program that was killed
//   latest, best       names of directories, for people and scripts
//
// A directory gets its final name when everything in it is on disk. Read before: core/durable_file.h,
// dist/checkpoint/manifest.h. Read next: dist/checkpoint/checkpoint_writer.h.
#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dist/checkpoint/manifest.h"

namespace brigade::dist {

/// "step_000123"
std::string checkpoint_name(std::int64_t step);
/// Under which it is written.
std::string partial_name(std::int64_t step);
/// "rank_0003.safetensors"
std::string rank_file_name(int rank);
inline constexpr const char* kManifestFile = "manifest.json";
inline constexpr const char* kMarkerFile = "COMPLETE";

struct Checkpoint {
  std::filesystem::path directory;
  Manifest manifest;
};

/// Reads the manifest of a complete checkpoint and compares every file with it. Throws Error: "step_000123: no COMPLETE
/// in it: it was not finished", "step_000123: model.safetensors does not have the checksum of the manifest", …
Checkpoint open_checkpoint(const std::filesystem::path& directory);

struct FoundCheckpoints {
  std::optional<Checkpoint> newest;  ///< The complete one of the highest step.
  std::vector<std::string> skipped;  ///< Why newer ones were not taken, a line each.
};
FoundCheckpoints find_newest_checkpoint(const std::filesystem::path& folder);

/// Steps of all directories with the name of a checkpoint, whatever is in them; highest first.
std::vector<std::int64_t> listed_checkpoints(const std::filesystem::path& folder);

/// Removes what programs that were killed have left, and returns the names. Only for who has claimed the folder.
std::vector<std::string> remove_leftovers(const std::filesystem::path& folder);

/// Removes sound checkpoints but the `keep_last` of the highest steps and the one of the best score. Those that
/// open_checkpoint() refuses are no reason to remove others, and stay for people to look at. `sound`: steps that need
/// not be read any more, as they were written here or read before; those read now are added. A directory loses its name
/// first: one that is half removed is never taken for a checkpoint. Throws Error.
void prune_checkpoints(const std::filesystem::path& folder, int keep_last, std::set<std::int64_t>& sound,
                       FileSystem& files = file_system());
/// Removes one; nothing if it is not there.
void remove_checkpoint(const std::filesystem::path& folder, std::int64_t step,
                       FileSystem& files = file_system());

/// Bytes that are free for this user where `folder` is.
std::int64_t free_bytes(const std::filesystem::path& folder);

}  // namespace brigade::dist
