// SPDX-License-Identifier: MIT
// dist/checkpoint/checkpoint_folder.cpp - see the header.
#include "dist/checkpoint/checkpoint_folder.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <system_error>

#include "core/check.h"
#include "core/regular_file.h"

namespace brigade::dist {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step_", kPartial = ".partial";

// The step of "step_000123"; nothing for other names.
std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::int64_t step = 0;
  const char* const end = name.data() + name.size();
  const auto [at, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (error != std::errc() || at != end || checkpoint_name(step) != name) return std::nullopt;
  return step;
}

std::string read_small(const fs::path& path) {
  constexpr std::int64_t kMaxBytes = std::int64_t{64} << 20;
  return RegularFile(path, str(path.filename().string(), ": "), kMaxBytes).read_rest();
}

std::string hash_of(std::string_view text) {
  Checksum128 sum;
  sum.update(std::as_bytes(std::span(text)));
  return sum.hex();
}

void check_file(const fs::path& directory, const CheckpointFile& expected) {
  RegularFile file(directory / expected.name, expected.name + ": ");
  BRIGADE_CHECK(std::cmp_equal(file.bytes(), expected.digest.bytes), expected.name, " has ", file.bytes(),
                " bytes, of ", expected.digest.bytes);
  constexpr std::int64_t kChunk = std::int64_t{1} << 20;
  std::vector<std::byte> chunk(static_cast<std::size_t>(std::min(kChunk, file.bytes())));
  Checksum128 sum;
  for (std::int64_t left = file.bytes(); left > 0;) {
    const std::int64_t bytes = std::min(kChunk, left);
    file.read(chunk.data(), bytes);
    sum.update(std::span(chunk).first(static_cast<std::size_t>(bytes)));
    left -= bytes;
  }
  BRIGADE_CHECK(sum.hex() == expected.digest.xxh3_128, expected.name,
                " does not have the checksum of the manifest");
}

Manifest read_manifest(const fs::path& directory) {
  std::error_code ignored;
  BRIGADE_CHECK(fs::is_directory(directory, ignored), "no directory");
  BRIGADE_CHECK(fs::exists(directory / kMarkerFile, ignored), "no ", kMarkerFile,
                " in it: it was not finished");
  const std::string text = read_small(directory / kManifestFile);
  BRIGADE_CHECK(read_small(directory / kMarkerFile) == hash_of(text) + "\n", kManifestFile,
                " does not have the checksum in ", kMarkerFile);
  return manifest_from_json(text);
}

// What the name of the directory says must be so.
Checkpoint open_named(const fs::path& directory, std::int64_t step) {
  Checkpoint found = open_checkpoint(directory);
  BRIGADE_CHECK(found.manifest.step == step, directory.string(), ": the manifest is of step ",
                found.manifest.step);
  return found;
}

}  // namespace

std::string checkpoint_name(std::int64_t step) { return fmt::format("step_{:06}", step); }
std::string partial_name(std::int64_t step) { return checkpoint_name(step) + std::string(kPartial); }
std::string rank_file_name(int rank) { return fmt::format("rank_{:04}.safetensors", rank); }

Checkpoint open_checkpoint(const fs::path& directory) {
  try {
    Checkpoint found{directory, read_manifest(directory)};
    for (const CheckpointFile& file : found.manifest.files) check_file(directory, file);
    return found;
  } catch (const Error& error) {
    fail(str(directory.string(), ": ", error.what()));
  }
}

std::vector<std::int64_t> listed_checkpoints(const fs::path& folder) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
    if (const auto step = step_of(entry.path().filename().string())) steps.push_back(*step);
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

FoundCheckpoints find_newest_checkpoint(const fs::path& folder) {
  FoundCheckpoints found;
  for (const std::int64_t step : listed_checkpoints(folder)) {
    try {
      found.newest = open_named(folder / checkpoint_name(step), step);
      return found;
    } catch (const Error& error) {
      found.skipped.push_back(error.what());
    }
  }
  return found;
}

std::vector<std::string> remove_leftovers(const fs::path& folder) {
  std::vector<fs::path> left;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const bool partial = name.starts_with(kPrefix) && name.ends_with(kPartial);
    if (partial || (is_temporary_name(name) &&
                    (name.starts_with("latest") || name.starts_with("best") || name.starts_with(".probe"))))
      left.push_back(entry.path());
  }
  std::vector<std::string> names;
  for (const fs::path& path : left)
    if (fs::remove_all(path, error) != static_cast<std::uintmax_t>(-1))
      names.push_back(path.filename().string());
  return names;
}

void remove_checkpoint(const fs::path& folder, std::int64_t step, FileSystem& files) {
  const fs::path directory = folder / checkpoint_name(step);
  std::error_code error;
  if (!fs::exists(directory, error)) return;
  const fs::path nameless = folder / str(checkpoint_name(step), ".removed", kPartial);
  rename_durably(directory, nameless, "remove an old checkpoint", files);
  fs::remove_all(nameless, error);
  BRIGADE_CHECK(!error, "remove an old checkpoint: cannot remove ", nameless.string(), ": ", error.message());
}

void prune_checkpoints(const fs::path& folder, int keep_last, std::set<std::int64_t>& sound,
                       FileSystem& files) {
  struct Old {
    std::int64_t step;
    std::optional<double> score;
  };
  std::vector<Old> complete;
  for (const std::int64_t step : listed_checkpoints(folder)) {
    const fs::path directory = folder / checkpoint_name(step);
    try {
      const Manifest manifest =
          sound.contains(step) ? read_manifest(directory) : open_named(directory, step).manifest;
      complete.push_back({step, manifest.score});
      sound.insert(step);
    } catch (const Error&) {
      continue;  // Said at each start.
    }
  }
  // Of equal scores the newest, which stands first.
  const auto best = std::max_element(complete.begin(), complete.end(), [](const Old& a, const Old& b) {
    return a.score.value_or(-1) < b.score.value_or(-1);
  });
  if (best != complete.end() && best->score)
    write_durably(folder / "best", checkpoint_name(best->step) + "\n", "checkpoint", files);
  for (auto old = complete.begin(); old != complete.end(); ++old)
    if (old - complete.begin() >= keep_last && !(old == best && old->score))
      remove_checkpoint(folder, old->step, files);
}

std::int64_t free_bytes(const fs::path& folder) {
  struct statvfs space {};
  BRIGADE_CHECK(statvfs(folder.c_str(), &space) == 0, "checkpoint: cannot ask for the free space at ",
                folder.string(), ": ", std::generic_category().message(errno));
  return static_cast<std::int64_t>(space.f_bavail) * static_cast<std::int64_t>(space.f_frsize);
}

}  // namespace brigade::dist
