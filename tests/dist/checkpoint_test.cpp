// SPDX-License-Identifier: MIT
// tests/dist/checkpoint_test.cpp - theorem 4: a run that goes on from a checkpoint is the run that was not stopped, bit
// by bit, on every rank. And what else a folder of checkpoints promises. Damage: tests/reliability/.
#include <array>
#include <fstream>

#include "kernels/ops.h"
#include "nn/optim/catalog.h"
#include "tests/support/failing_file_system.h"
#include "tests/support/ranks.h"
#include "tests/support/resumable.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::dist;
using test::require;
using test::Resumable;

namespace {

// One rank's thread alone, for what does not depend on ranks.
void alone(const std::function<void(ProcessGroup&)>& body) { run_ranks({.backend = "threads"}, body); }

// Saves the state behind each of the next `count` steps.
void save_steps(Resumable& run, CheckpointWriter& writer, int count) {
  for (int i = 0; i < count; ++i) {
    run.step(writer);
    const auto outcome = writer.drain();
    require(outcome && outcome->error.empty(), outcome ? outcome->error : "no outcome");
  }
}

// An emulated device is slow.
std::vector<int> world_sizes() {
  return test::test_device() == Device{} ? std::vector{1, 2, 3, 4} : std::vector{1, 2};
}

void overwrite(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

}  // namespace

TEST_CASE(
    "theorem 4: a run that goes on from a checkpoint equals the one that was not stopped, for every "
    "optimizer",
    "[dist][checkpoint][theorem][ranks][device]") {
  for (const std::string_view optimizer : optim::optimizer_names())
    test::for_each_world(
        [&](ProcessGroup& group) {
          const test::SharedFolder folder(group);
          const test::ResumableOptions options{.optimizer = std::string(optimizer)};
          std::uint64_t expected = 0;
          {
            Resumable whole(group, options);
            for (int i = 0; i < 5; ++i) whole.step();
            expected = whole.fingerprint();
          }
          {
            CheckpointWriter writer(group, {.folder = folder.path()});
            Resumable first(group, options);
            for (int i = 0; i < 2; ++i) first.step();
            save_steps(first, writer, 1);
            for (int i = 0; i < 2; ++i) first.step();
            require(first.fingerprint() == expected, "saving changes nothing");
          }
          Resumable second(group, {.optimizer = std::string(optimizer), .seed = 77});
          second.load(open_checkpoint(folder.path() / "step_000003"));
          while (second.steps_done() < 5) second.step();
          require(second.fingerprint() == expected, str(optimizer, ", ", group.size(), " ranks"));
        },
        {.sizes = world_sizes()});
}

TEST_CASE(
    "a checkpoint of the CPU goes on on a device and the other way round, with the bits that were saved",
    "[dist][checkpoint][device]") {
  test::for_each_world(
      [&](ProcessGroup& group) {
        const std::array<Device, 2> places{Device{}, group.device()};
        for (const bool there : {false, true}) {
          const test::SharedFolder folder(group);
          CheckpointWriter writer(group, {.folder = folder.path()});
          Resumable first(group, {.device = places[there]});
          save_steps(first, writer, 2);
          Resumable second(group, {.seed = 77, .device = places[!there]});
          second.load(open_checkpoint(folder.path() / "step_000002"));
          require(second.fingerprint() == first.fingerprint(), str("from ", places[there]));
          second.step();           // And it trains there.
          group.barrier().wait();  // Rank 0 removes the folder behind it.
        }
      },
      {.sizes = {1, 2}});
}

TEST_CASE("theorem 4 holds for what every comm hook keeps back", "[dist][checkpoint][theorem][ranks]") {
  for (const HookEntry& hook : comm_hooks())
    test::for_each_world(
        [&](ProcessGroup& group) {
          const test::SharedFolder folder(group);
          const test::ResumableOptions options{.optimizer = "sgd", .hook = std::string(hook.name)};
          CheckpointWriter writer(group, {.folder = folder.path()});
          Resumable whole(group, options);
          for (int i = 0; i < 2; ++i) whole.step();
          save_steps(whole, writer, 1);
          for (int i = 0; i < 2; ++i) whole.step();
          Resumable second(group, options);
          second.load(open_checkpoint(folder.path() / "step_000003"));
          while (second.steps_done() < 5) second.step();
          require(second.fingerprint() == whole.fingerprint(), str(hook.name, ", ", group.size(), " ranks"));
        },
        {.sizes = {2, 3}});
}

TEST_CASE("training goes on while a checkpoint is written, and does not get into it",
          "[dist][checkpoint][ranks]") {
  test::for_each_world([&](ProcessGroup& group) {
    const test::SharedFolder folder(group);
    CheckpointWriter writer(group, {.folder = folder.path()});
    Resumable run(group);
    run.step(writer);
    const std::uint64_t expected = run.fingerprint();
    for (int i = 0; i < 3; ++i) run.step();
    require(writer.drain().has_value(), "an outcome");
    Resumable again(group);
    again.load(open_checkpoint(folder.path() / "step_000001"));
    require(again.fingerprint() == expected, "the state behind step 1");
    group.barrier().wait();  // rank 0 removes the folder behind it
  });
}

TEST_CASE("a checkpoint of another number of ranks goes on with the same model, optimizer and average",
          "[dist][checkpoint]") {
  const test::TempDir folder;
  run_ranks({.backend = "threads", .ranks = 3}, [&](ProcessGroup& group) {
    CheckpointWriter writer(group, {.folder = folder.path()});
    Resumable run(group);
    save_steps(run, writer, 2);
  });
  const Checkpoint saved = open_checkpoint(folder / "step_000002");
  REQUIRE(saved.manifest.world_size == 3);
  run_ranks({.backend = "threads", .ranks = 2}, [&](ProcessGroup& group) {
    Resumable run(group, {.seed = 9});
    run.load(saved);
    const NamedTensors model = load_safetensors(saved.directory / kModelFile).tensors;
    for (const auto& loaded : run.state().model) {
      const auto found = std::find_if(model.begin(), model.end(),
                                      [&](const auto& in_file) { return in_file.first == loaded.first; });
      require(found != model.end(), loaded.first);
      test::require_same(loaded.second, found->second, loaded.first);
    }
    run.step();
  });
}

TEST_CASE("the newest complete checkpoint is found, and others are skipped with a reason",
          "[dist][checkpoint][error][A18]") {
  const test::TempDir folder;
  alone([&](ProcessGroup& group) {
    CheckpointWriter writer(group, {.folder = folder.path(), .keep_last = 10});
    Resumable run(group);
    save_steps(run, writer, 6);
  });
  REQUIRE(test::read_text(folder / "latest") == "step_000006\n");
  REQUIRE(find_newest_checkpoint(folder.path()).newest->manifest.step == 6);
  std::filesystem::remove(folder / "step_000006" / "COMPLETE");
  test::overwrite_byte(folder / "step_000005" / "optimizer.safetensors", 700, '\x55');
  std::filesystem::resize_file(folder / "step_000004" / "model.safetensors", 100);
  overwrite(folder / "step_000003" / "manifest.json", "{");
  std::filesystem::remove(folder / "step_000002" / "ema.safetensors");
  const FoundCheckpoints found = find_newest_checkpoint(folder.path());
  REQUIRE(found.newest->manifest.step == 1);
  REQUIRE(found.skipped.size() == 5);
  CHECK_THAT(found.skipped[0], ContainsSubstring("step_000006: no COMPLETE in it"));
  CHECK_THAT(
      found.skipped[1],
      ContainsSubstring("step_000005: optimizer.safetensors does not have the checksum of the manifest"));
  CHECK_THAT(found.skipped[2], ContainsSubstring("step_000004: model.safetensors has 100 bytes, of "));
  CHECK_THAT(found.skipped[3], ContainsSubstring("manifest.json does not have the checksum in COMPLETE"));
  CHECK_THAT(found.skipped[4],
             ContainsSubstring("step_000002: ema.safetensors: cannot be read; No such file"));
}

TEST_CASE("leftovers of killed programs are removed, and nothing else", "[dist][checkpoint][A18]") {
  const test::TempDir folder;
  std::filesystem::create_directories(folder / "step_000009.partial");
  overwrite(folder / "step_000009.partial" / "model.safetensors.part-1-0", "half");
  overwrite(folder / "latest.part-12-3", "step");
  overwrite(folder / "notes.part-1", "of somebody else");
  std::filesystem::create_directories(folder / "step_9.partial.mine");
  const std::vector<std::string> removed = remove_leftovers(folder.path());
  REQUIRE(removed.size() == 2);
  REQUIRE(std::filesystem::exists(folder / "notes.part-1"));
  REQUIRE(std::filesystem::exists(folder / "step_9.partial.mine"));
  REQUIRE(!std::filesystem::exists(folder / "step_000009.partial"));
}

TEST_CASE("the newest checkpoints and the best one stay", "[dist][checkpoint]") {
  const test::TempDir folder;
  alone([&](ProcessGroup& group) {
    CheckpointWriter writer(group, {.folder = folder.path(), .keep_last = 2});
    Resumable run(group);
    for (const double score : {0.5, 0.9, 0.3, 0.4, 0.6}) {
      run.step();
      const TrainingState state = run.state();
      writer.begin(run.steps_done(), state);
      writer.end({.score = score});
      require(writer.drain()->error.empty(), "saved");
    }
  });
  REQUIRE(listed_checkpoints(folder.path()) == std::vector<std::int64_t>{5, 4, 2});
  REQUIRE(test::read_text(folder / "best") == "step_000002\n");
  REQUIRE(test::read_text(folder / "latest") == "step_000005\n");
}

TEST_CASE("loading lists all missing, unexpected and mismatched tensors of all files, and changes nothing",
          "[dist][checkpoint][error]") {
  const test::TempDir folder;
  alone([&](ProcessGroup& group) {
    CheckpointWriter writer(group, {.folder = folder.path()});
    Resumable run(group, {.optimizer = "sgd"});
    save_steps(run, writer, 1);
    Resumable other(group, {.optimizer = "adamw"});
    other.step();
    const std::uint64_t before = other.fingerprint();
    Checkpoint checkpoint = open_checkpoint(folder / "step_000001");
    const std::string text = test::thrown_by([&] { other.load(checkpoint); });
    for (const char* part :
         {"missing:", "optimizer first_moment.0.weight", "unexpected:", "optimizer momentum.0.weight"})
      test::require_contains(text, part);
    require(other.fingerprint() == before, "nothing was changed");

    // Not listed, so that no checksum speaks for it.
    Checkpoint unlisted = checkpoint;
    unlisted.manifest.files.clear();
    test::require_contains(test::thrown_by([&] { run.load(unlisted); }),
                           "the manifest does not list model.safetensors");

    // Of another shape.
    save_safetensors(checkpoint.directory / kModelFile, {{"0.weight", Tensor::zeros({2})}});
    const std::string mismatch = test::thrown_by([&] { run.load(checkpoint); });
    for (const char* part :
         {"missing:", "model 6.bias", "mismatched: model 0.weight (f32 [4, 3, 3, 3] here, f32 [2] given)"})
      test::require_contains(mismatch, part);
  });
}

TEST_CASE("a rank that cannot write ends the checkpoint on all, by name, and the next one succeeds",
          "[dist][checkpoint][error][A19]") {
  const test::TempDir folder;
  run_ranks({.backend = "threads", .ranks = 3}, [&](ProcessGroup& group) {
    test::FailingFileSystem files({.fail_at = group.rank() == 1 ? 1 : 0, .call = "write", .code = EIO});
    CheckpointWriter writer(group, {.folder = folder.path(), .files = &files});
    Resumable run(group);
    run.step(writer);
    const auto outcome = writer.drain();
    require(outcome.has_value(), "all ranks learn of it");
    test::require_contains(outcome->error, "rank 1: save_safetensors: cannot write ");
    test::require_contains(outcome->error, "rank_0001.safetensors: Input/output error; ");
    save_steps(run, writer, 1);
  });
  REQUIRE(listed_checkpoints(folder.path()) == std::vector<std::int64_t>{2});
  REQUIRE(open_checkpoint(folder / "step_000002").manifest.world_size == 3);
}

TEST_CASE("a folder of checkpoints has one writer", "[dist][checkpoint][error]") {
  const test::TempDir folder;
  alone([&](ProcessGroup& group) {
    CheckpointWriter writer(group, {.folder = folder.path()});
    test::require_contains(test::thrown_by([&] { CheckpointWriter(group, {.folder = folder.path()}); }),
                           "another run writes to " + folder.path().string());
  });
  overwrite(folder / "file", "");
  alone([&](ProcessGroup& group) {
    test::require_contains(test::thrown_by([&] { CheckpointWriter(group, {.folder = folder / "file"}); }),
                           "checkpoint: cannot create ");
  });
}

TEST_CASE("a manifest goes round, and whatever is none is refused with the rule",
          "[dist][checkpoint][error]") {
  const Manifest manifest{.step = 7,
                          .world_size = 2,
                          .optimizer_steps = 6,
                          .score = 0.5,
                          .generators = {{1, 2}, {~std::uint64_t{0}, 4}},
                          .run = R"({"a":1})",
                          .files = {{"model.safetensors", {12, "00"}}}};
  const std::string text = manifest_to_json(manifest);
  REQUIRE(manifest_to_json(manifest_from_json(text)) == text);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    REQUIRE(changed.find(from) != std::string::npos);
    return changed.replace(changed.find(from), from.size(), to);
  };
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "not JSON"},
      {std::string(100'000, '['), "nested deeper than"},
      {"[]", "\"format\" is missing"},
      {with("\"step\": 7", "\"step\": -7"), "\"step\" must be a whole number"},
      {with("\"step\": 7", "\"step\": 7.5"), "\"step\" must be a whole number"},
      {with("\"step\": 7", "\"step\": 7, \"step\": 8"), "a key stands twice"},
      {with("\"world_size\": 2", "\"world_size\": 3"), "one for each of the 3 ranks"},
      {with("\"score\": 0.5", "\"score\": \"good\""), "\"score\" must be a number or null"},
      {with("\"model.safetensors\"", "\"../model\""), "no plain name"},
      {with("\"model.safetensors\"", "\"/etc/passwd\""), "no plain name"},
      {with("\"bytes\": 12", "\"bytes\": 18446744073709551615"), "\"bytes\" must be a whole number"},
      {with("brigade checkpoint 1", "brigade checkpoint 2"), "\"format\" must be"}};
  for (const auto& [json, message] : cases) {
    CAPTURE(json.substr(0, 200));
    CHECK_THROWS_WITH(manifest_from_json(json), ContainsSubstring(message));
  }
}

TEST_CASE("shards cut for one number of ranks are put together for any other", "[dist][checkpoint]") {
  const std::int64_t elements = 1003;
  const Tensor whole = test::random({elements}, 3);
  for (int from = 1; from <= 5; ++from) {
    std::vector<Shard> shards;
    std::int64_t covered = 0;
    for (int rank = from - 1; rank >= 0; --rank) {
      const ElementRange range = shard_range(elements, rank, from);
      covered += range.count();
      shards.push_back({range, ops::clone(whole.slice(0, range.begin, range.end))});
    }
    REQUIRE(covered == elements);
    for (int to = 1; to <= 5; ++to)
      for (int rank = 0; rank < to; ++rank) {
        const ElementRange wanted = shard_range(elements, rank, to);
        CHECK(test::differs_bitwise(reshard(shards, wanted),
                                    ops::clone(whole.slice(0, wanted.begin, wanted.end))) == "");
      }
  }
}

TEST_CASE("shards that leave a hole, overlap or lie about their size are refused",
          "[dist][checkpoint][error]") {
  const auto shard = [](std::int64_t begin, std::int64_t end) {
    return Shard{{begin, end}, Tensor::zeros({end - begin})};
  };
  CHECK_THROWS_WITH(reshard(std::vector{shard(0, 4), shard(6, 8)}, {2, 8}),
                    ContainsSubstring("element 4 is in no shard"));
  CHECK_THROWS_WITH(reshard(std::vector{shard(0, 4)}, {2, 8}), ContainsSubstring("element 4 is in no shard"));
  CHECK_THROWS_WITH(reshard(std::vector{shard(0, 4), shard(3, 8)}, {2, 8}),
                    ContainsSubstring("element 3 is in several shards"));
  CHECK_THROWS_WITH(reshard(std::vector{Shard{{0, 4}, Tensor::zeros({3})}}, {0, 4}),
                    ContainsSubstring("must be a vector of that size; got f32 [3]"));
}
