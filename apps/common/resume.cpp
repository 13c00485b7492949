// SPDX-License-Identifier: MIT
// apps/common/resume.cpp - finds the checkpoint to go on from. Read before: apps/common/train_state.h.
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/common/machine_text.h"
#include "apps/common/run_main.h"
#include "apps/common/train_state.h"
#include "core/one_line.h"
#include "core/parallel.h"
#include "core/runtime.h"

namespace brigade::apps {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Rank 0's part: the directory to load, or none. Throws Error.
fs::path choose(const TrainOptions& options) {
  const fs::path folder = options.checkpoint_folder();
  if (!folder.empty()) {
    const DirectoryClaim claim(folder);
    BRIGADE_CHECK(!claim.refused(), "checkpoint: another run writes to ", folder.string());
    for (const std::string& name : dist::remove_leftovers(folder))
      write_at_once(STDOUT_FILENO, str("removed ", (folder / name).string(), ", which was not finished\n"));
  }
  const auto newest_of = [](const fs::path& where) {
    const dist::FoundCheckpoints found = dist::find_newest_checkpoint(where);
    for (const std::string& reason : found.skipped)
      write_at_once(STDOUT_FILENO, str("skipped checkpoint ", reason, "\n"));
    return found.newest ? found.newest->directory : fs::path();
  };
  const auto steps = dist::listed_checkpoints(folder);
  if (options.resume.empty()) {
    BRIGADE_CHECK(options.overwrite || steps.empty(), "checkpoint: ", folder.string(),
                  " holds checkpoints of an earlier run; --resume "
                  "auto goes on from them, --overwrite removes them, or choose another --checkpoint-dir");
    return {};
  }
  if (options.resume == "auto") {
    const fs::path newest = newest_of(folder);
    std::error_code ignored;
    // Else --out would be refused as another's.
    BRIGADE_CHECK(!newest.empty() || options.overwrite || fs::exists(folder, ignored) ||
                      options.out.empty() || !fs::exists(fs::path(options.out) / "config.json", ignored),
                  "--resume auto: the run in ", options.out,
                  " saved no checkpoints (--save-every, --save-seconds): there is nothing to go on from; "
                  "--overwrite begins it again");
    if (newest.empty())
      write_at_once(STDOUT_FILENO, str("no complete checkpoint in ", folder.string(), ": the run begins\n"));
    return newest;
  }
  std::error_code ignored;
  fs::path given = options.resume;
  BRIGADE_CHECK(fs::is_directory(given, ignored), "--resume: there is no folder ", given.string());
  given = fs::canonical(given);  // A slash at the end is no part of a name.
  if (fs::is_directory(given / "checkpoints", ignored)) given /= "checkpoints";  // It was an --out.
  fs::path chosen = given;
  if (!fs::exists(given / dist::kManifestFile, ignored)) {
    chosen = newest_of(given);
    BRIGADE_CHECK(!chosen.empty(), "--resume: no complete checkpoint in ", given.string());
  } else {
    static_cast<void>(dist::open_checkpoint(given));
  }
  return chosen;
}

// "batch_size" as people write it.
std::string spelled(std::string flag) {
  std::replace(flag.begin(), flag.end(), '_', '-');
  return "--" + flag;
}

// Later checkpoints of another course would be taken for the newest ones.
void refuse_later_checkpoints(const fs::path& folder, std::int64_t step) {
  if (folder.empty()) return;
  const auto newest = dist::find_newest_checkpoint(folder).newest;
  BRIGADE_CHECK(!newest || newest->manifest.step <= step, "--resume: ", folder.string(),
                " holds checkpoints of later steps, up to ", newest ? newest->manifest.step : 0,
                "; remove them, or choose another --checkpoint-dir");
}

Resumed read_run(dist::Checkpoint checkpoint) {
  Resumed resumed{.checkpoint = std::move(checkpoint), .position = {}, .flags = {}};
  try {
    const Json run = Json::parse(resumed.checkpoint.manifest.run);
    const Json& sampler = run.at("sampler");
    for (const auto& [name, value] : sampler.items())
      BRIGADE_CHECK(value.is_number_integer(), resumed.checkpoint.directory.string(), ": the sampler's ",
                    one_line(name), " is no whole number");
    resumed.position = {.step = resumed.checkpoint.manifest.step,
                        .epoch = sampler.at("epoch"),
                        .sample = sampler.at("sample"),
                        .global_batch = sampler.at("global_batch"),
                        .accumulate = sampler.at("accumulate"),
                        .samples = sampler.at("samples")};
    resumed.seconds = run.at("seconds");
    resumed.best = run.at("best");
    resumed.evaluation_due = run.at("evaluation_due");
    resumed.flags = run.at("flags").dump();
  } catch (const Json::exception& error) {
    fail(str(resumed.checkpoint.directory.string(), ": the manifest is of another program: ", error.what()));
  }
  const SamplerPosition& p = resumed.position;
  constexpr std::int64_t kMost = 1'000'000'000;  // As --steps and --epochs.
  const bool likely = p.step <= kMost && p.epoch >= 0 && p.epoch <= kMost && p.sample >= 0 &&
                      p.sample <= p.samples && p.global_batch > 0 && p.accumulate > 0 &&
                      p.accumulate <= kMost && resumed.seconds >= 0 && resumed.seconds < 1e12;
  BRIGADE_CHECK(likely, resumed.checkpoint.directory.string(), ": the sampler's position makes no sense");
  return resumed;
}

}  // namespace

std::optional<Resumed> find_resumed(const TrainOptions& options, dist::ProcessGroup& group) {
  if (options.resume.empty() && options.checkpoint_folder().empty()) return std::nullopt;
  Json word{{"error", ""}, {"directory", ""}};
  if (group.rank() == 0) {
    try {
      const fs::path directory = choose(options);
      word["directory"] = directory.string();
      if (!directory.empty()) {
        const dist::Checkpoint found = dist::open_checkpoint(directory);
        refuse_later_checkpoints(options.checkpoint_folder(), found.manifest.step);
        word["manifest"] = dist::manifest_to_json(found.manifest);
      }
    } catch (const std::exception& error) {
      word["error"] = error.what();
    }
  }
  const Json heard =
      Json::parse(group.all_gather_text(word.dump(-1, ' ', false, Json::error_handler_t::replace)).front());
  BRIGADE_CHECK(heard["error"].get<std::string>().empty(), heard["error"].get<std::string>());
  const std::string directory = heard["directory"];
  if (directory.empty()) return std::nullopt;
  Resumed resumed = read_run({directory, dist::manifest_from_json(heard["manifest"])});
  resumed.check_state_fits(options, group.size());  // Before anything of the run is touched.
  return resumed;
}

void remove_overwritten(const TrainOptions& options) {
  const fs::path folder = !options.checkpoint_folder().empty() ? fs::path(options.checkpoint_folder())
                          : !options.out.empty()               ? fs::path(options.out) / "checkpoints"
                                                               : fs::path();
  std::error_code ignored;
  if (!options.overwrite || !fs::is_directory(folder, ignored)) return;
  const DirectoryClaim claim(folder);
  BRIGADE_CHECK(!claim.refused(), "checkpoint: another run writes to ", folder.string());
  for (const std::int64_t step : dist::listed_checkpoints(folder))
    if (fs::exists(folder / dist::checkpoint_name(step) / dist::kManifestFile, ignored))  // It is one.
      dist::remove_checkpoint(folder, step);
}

std::optional<std::int64_t> lines_to_keep(const TrainOptions& options,
                                          const std::optional<Resumed>& resumed) {
  const fs::path folder = options.checkpoint_folder();
  std::error_code ignored;
  // Of a run that was ended before its first checkpoint all is told again.
  if (!resumed && options.resume == "auto" && fs::exists(folder, ignored)) return 0;
  if (!resumed || !fs::equivalent(resumed->checkpoint.directory.parent_path(), folder, ignored))
    return std::nullopt;
  return resumed->position.step;
}

void say_if_over(const Course& course, int rank) {
  if (rank != 0 || course.first < course.steps) return;
  write_at_once(STDOUT_FILENO,
                str("the run is over: the checkpoint is of step ", course.first, " of ", course.steps, "\n"));
}

// A plan fits the flags and the number of ranks that it was made for.
std::string Resumed::plan_for(const TrainOptions& options, int size) const {
  const Json before = Json::parse(flags), now = Json::parse(options.to_json());
  for (const char* flag : {"sync", "plan", "bucket_mb", "first_bucket_mb", "last_bucket_mb", "min_bucket_kb",
                           "split_large", "bucket_order", "model", "stem"})
    if (!before.contains(flag) || before[flag] != now[flag]) return "";
  const bool fits = size == checkpoint.manifest.world_size && options.sync == "bucketed";
  return fits ? checkpoint.manifest.bucket_plan : "";
}

void Resumed::check_state_fits(const TrainOptions& options, int size) const {
  const Json before = Json::parse(flags), now = Json::parse(options.to_json());
  const auto is_used = [](const Json& value) { return value.is_number() && value > 0; };
  const auto same = [&](const char* flag, const auto& what_counts) {
    BRIGADE_CHECK(!before.contains(flag) || what_counts(before[flag]) == what_counts(now[flag]),
                  "--resume: ", checkpoint.directory.string(), " is of ", spelled(flag), " ",
                  before[flag].dump(), ", and this run of ", now[flag].dump(),
                  ": what they keep differs; --init ", (checkpoint.directory / dist::kModelFile).string(),
                  " begins a new run with its model alone");
  };
  const auto all = [](const Json& value) { return value; };
  for (const char* flag : {"model", "stem", "cifar100", "optimizer"}) same(flag, all);
  for (const char* flag : {"momentum", "ema"}) same(flag, is_used);
  same("precision", [](const Json& value) { return value == "f16"; });  // Has a loss scale.
  if (size == checkpoint.manifest.world_size) same("comm_hook", all);
}

void TrainState::say_what_differs(const Resumed& resumed) const {
  const Json run = Json::parse(resumed.checkpoint.manifest.run);
  log_.line(str("goes on from ", resumed.checkpoint.directory.string(), ", behind step ", course_.first,
                " in epoch ", resumed.position.epoch + 1));
  std::string differs;
  const auto compare = [&](const std::string& what, const Json& before, const Json& now) {
    if (before != now)
      differs += str(differs.empty() ? "" : ", ", what, " ", before.dump(), " -> ", now.dump());
  };
  compare("ranks", resumed.checkpoint.manifest.world_size, group_.size());
  compare("threads", run.value("threads", 0), num_threads());
  compare("processor", run.value("processor", ""), processor_text());
  if (group_.size() > 2)
    compare("backend", run.value("backend", ""), group_.backend());  // Two have one order of sums.
  compare("device", run.value("device", device_name({})), device_name(group_.device()));
  const Json data = run.value("data", Json());
  if (data.is_object() && data.value("labels", "") != data::labels_checksum(parts_.data.train))
    differs += str(differs.empty() ? "" : ", ", "training images ", data.value("source", ""), " -> ",
                   parts_.data.source);
  const Json before = Json::parse(resumed.flags), now = Json::parse(options_.to_json());
  for (const auto& [flag, value] : before.items()) {
    static constexpr std::string_view kFree[] = {
        "save",       "data",       "init",         "ranks",     "threads",         "timeout",   "device",
        "cuda_graph", "save_every", "save_seconds", "keep_last", "on_save_failure", "eval_every"};
    if (std::find(std::begin(kFree), std::end(kFree), flag) != std::end(kFree) || !now.contains(flag))
      continue;
    compare(spelled(flag), value, now[flag]);
  }
  if (!differs.empty()) log_.line(str("not bit-identical to the run that would have gone on: ", differs));
  if (!course_.note.empty()) log_.line(course_.note);
  if (group_.size() != resumed.checkpoint.manifest.world_size)
    log_.line("all ranks take rank 0's buffers and generator, and what a comm hook had kept back is lost");
}

}  // namespace brigade::apps
