// SPDX-License-Identifier: MIT
// tests/reliability/checkpoint_campaign.cpp - what disks do to checkpoints, as often as one likes:
//   checkpoint_campaign flips COUNT [SEED]   one byte of a complete checkpoint is changed: must be noticed
//   checkpoint_campaign failures             the n-th open, write, fsync, close, rename, mkdir fails, for all n
//   checkpoint_campaign full_disk            the disk is full at byte k, for all k in steps of 256 bytes
// Prints one line of JSON; exit code 1 if anything was not as it must be. Read before: tests/support/resumable.h.
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "core/rng.h"
#include "dist/launch.h"
#include "tests/support/failing_file_system.h"
#include "tests/support/resumable.h"
#include "tests/support/temp_dir.h"

namespace brigade::test {
namespace {

namespace fs = std::filesystem;
using dist::CheckpointWriter;

void alone(const std::function<void(dist::ProcessGroup&)>& body) {
  dist::run_ranks({.backend = "threads"}, body);
}

struct Victim {
  fs::path path;
  std::int64_t bytes = 0;
};

// The files of a complete checkpoint.
std::vector<Victim> save_one(dist::ProcessGroup& group, const fs::path& folder) {
  CheckpointWriter writer(group, {.folder = folder});
  Resumable run(group);
  run.step(writer);
  BRIGADE_CHECK(writer.drain()->error.empty(), "the checkpoint was not saved");
  std::vector<Victim> files;
  for (const auto& entry : fs::directory_iterator(folder / "step_000001"))
    files.push_back({entry.path(), static_cast<std::int64_t>(entry.file_size())});
  std::sort(files.begin(), files.end(), [](const Victim& a, const Victim& b) { return a.path < b.path; });
  return files;
}

int flips(std::int64_t count, std::uint64_t seed) {
  std::int64_t detected = 0, bytes = 0;
  const TempDir folder;
  alone([&](dist::ProcessGroup& group) {
    const std::vector<Victim> files = save_one(group, folder.path());
    for (const Victim& file : files) bytes += file.bytes;
    for (std::int64_t trial = 0; trial < count; ++trial) {
      // Every second flip in a file drawn at random, so that the small ones get theirs; else any byte of all.
      const auto words = philox(seed, 0, static_cast<std::uint64_t>(trial));
      std::int64_t at = words[1] % bytes;
      std::size_t file = 0;
      if (trial % 2 == 0) {
        file = words[0] % files.size();
        at = words[1] % files[file].bytes;
      } else {
        while (at >= files[file].bytes) at -= files[file++].bytes;
      }
      std::fstream stream(files[file].path, std::ios::binary | std::ios::in | std::ios::out);
      stream.seekg(at);
      const int before = stream.get();
      stream.seekp(at);
      stream.put(static_cast<char>(before ^ static_cast<int>(1 + words[2] % 255)));
      stream.flush();
      if (!dist::find_newest_checkpoint(folder.path()).newest)
        ++detected;
      else
        fmt::print(stderr, "not detected: byte {} of {}\n", at, files[file].path.string());
      stream.seekp(at);
      stream.put(static_cast<char>(before));
    }
    BRIGADE_CHECK(dist::find_newest_checkpoint(folder.path()).newest, "the checkpoint was not restored");
  });
  fmt::print(R"({{"campaign": "flips", "trials": {}, "detected": {}, "bytes": {}, "seed": {}}})"
             "\n",
             count, detected, bytes, seed);
  return detected == count ? 0 : 1;
}

struct Trial {
  std::string error;    // What the writer said; empty: it was saved.
  bool struck = false;  // The failure happened.
  std::string struck_call = "write";
  bool old = false, fresh = false;  // Which checkpoint a resumed run would take.
  bool clean = true;                // Nothing torn under a final name.
};

// A folder with a complete checkpoint of step 1, and a run that goes on from there.
struct Ground {
  explicit Ground(dist::ProcessGroup& group) : run(group) {
    CheckpointWriter writer(group, {.folder = base.path()});
    run.step(writer);
    BRIGADE_CHECK(writer.drain()->error.empty(), "the first checkpoint was not saved");
  }
  TempDir base;
  Resumable run;
};

// The next save meets `plan`.
Trial strike(dist::ProcessGroup& group, Ground& ground, const FailurePlan& plan) {
  const TempDir folder;
  fs::copy(ground.base.path(), folder.path(), fs::copy_options::recursive);
  FailingFileSystem files(plan);
  Trial trial;
  try {
    CheckpointWriter writer(group, {.folder = folder.path(), .keep_last = 1, .files = &files});
    ground.run.step(writer);
    trial.error = writer.drain()->error;
  } catch (const Error& error) {
    trial.error = error.what();  // The folder could not be tried.
  }
  trial.struck = files.failed();
  if (!files.failed_call().empty()) trial.struck_call = files.failed_call();
  dist::remove_leftovers(folder.path());
  const auto found = dist::find_newest_checkpoint(folder.path());
  trial.old = found.newest && found.newest->manifest.step == 1;
  trial.fresh = found.newest && !trial.old && found.newest->manifest.step == ground.run.steps_done();
  trial.clean = found.skipped.empty();
  return trial;
}

// Complete, old or new; whoever was struck says so, with path and reason; nothing torn under a final name.
bool is_right(const Trial& trial, int code) {
  if (!trial.clean || trial.old == trial.fresh) return false;
  if (!trial.struck) return trial.error.empty() && trial.fresh;
  if (trial.error.empty()) return trial.fresh && trial.struck_call == "close directory";
  return trial.error.find('/') != std::string::npos &&
         trial.error.find(std::generic_category().message(code)) != std::string::npos;
}

int failures() {
  std::int64_t trials = 0, right = 0;
  std::string counts;
  alone([&](dist::ProcessGroup& group) {
    Ground ground(group);
    for (const char* call : {"open", "write", "sync", "close", "rename", "make directory"}) {
      int n = 1;
      for (;; ++n) {
        bool struck = false;
        for (const int code : {ENOSPC, EIO}) {
          const Trial trial = strike(group, ground, {.fail_at = n, .call = call, .code = code});
          struck = trial.struck;
          ++trials;
          right += is_right(trial, code) ? 1 : 0;
          if (!is_right(trial, code))
            fmt::print(stderr, "wrong: {} number {} fails with {}: old {}, new {}, clean {}, said \"{}\"\n",
                       call, n, std::generic_category().message(code), trial.old, trial.fresh, trial.clean,
                       trial.error);
        }
        if (!struck) break;
      }
      counts += fmt::format("{}\"{}\": {}", counts.empty() ? "" : ", ", call, n - 1);
    }
  });
  fmt::print(R"({{"campaign": "failures", "trials": {}, "right": {}, "calls": {{{}}}}})"
             "\n",
             trials, right, counts);
  return right == trials ? 0 : 1;
}

int full_disk() {
  constexpr std::int64_t kStep = 256;  // The checkpoint has a few KiB: finer than the blocks of a disk.
  std::int64_t trials = 0, right = 0, capacity = 0;
  alone([&](dist::ProcessGroup& group) {
    Ground ground(group);
    for (bool struck = true; struck; capacity += kStep) {
      const Trial trial = strike(group, ground, {.capacity = capacity});
      struck = trial.struck;
      const bool said = trial.error.find("bytes needed") != std::string::npos;
      const bool fine = is_right(trial, ENOSPC) && (!struck || said);
      ++trials;
      right += fine ? 1 : 0;
      if (!fine)
        fmt::print(stderr, "wrong: full at {}: old {}, said \"{}\"\n", capacity, trial.old, trial.error);
    }
  });
  fmt::print(R"({{"campaign": "full_disk", "trials": {}, "right": {}, "bytes": {}}})"
             "\n",
             trials, right, capacity - kStep);
  return right == trials ? 0 : 1;
}

}  // namespace
}  // namespace brigade::test

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  try {
    if (what == "flips" && argc > 2)
      return brigade::test::flips(std::atoll(argv[2]), argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1);
    if (what == "failures") return brigade::test::failures();
    if (what == "full_disk") return brigade::test::full_disk();
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
  fmt::print(stderr, "usage: checkpoint_campaign flips COUNT [SEED] | failures | full_disk\n");
  return 2;
}
