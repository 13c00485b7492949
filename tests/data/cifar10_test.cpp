// SPDX-License-Identifier: MIT
// tests/data/cifar10_test.cpp - case A17: what the reader accepts, and how it refuses the rest.
#include "data/cifar10.h"

#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/temp_dir.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::data;
namespace fs = std::filesystem;

namespace {

constexpr std::uintmax_t kRecord = 3073, kOfficial = 10'000 * kRecord;

const std::vector<std::string> kFiles{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                      "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};

// Six files of `bytes` zeros in `root`.
void write_set(const fs::path& root, std::uintmax_t bytes) {
  for (const auto& name : kFiles) test::write_zeros(root / name, bytes);
}

std::string error_of(const fs::path& directory, const CifarOptions& options) {
  try {
    read_cifar(directory, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("the official sizes are accepted and come to 50,000 training images", "[data][cifar][A17]") {
  const test::TempDir dir;
  write_set(dir / "cifar-10-batches-bin", kOfficial);
  const Split split = read_cifar(dir.path());
  REQUIRE(split.train.size() == 50'000);
  REQUIRE(split.test.size() == 10'000);
  REQUIRE(split.train.images.shape() == Shape{50'000, 3, 32, 32});
  REQUIRE(describe(split) == str("CIFAR-10 from ", (dir / "cifar-10-batches-bin").string(),
                                 ": 50000 training and 10000 test images, 10 classes"));
}

TEST_CASE("every other size is refused with path, size and expected size", "[data][cifar][A17][error]") {
  const test::TempDir dir;
  write_set(dir.path(), kOfficial);
  const auto which = GENERATE(as<std::string>(), "data_batch_1.bin", "data_batch_5.bin", "test_batch.bin");
  const auto bytes =
      GENERATE(as<std::uintmax_t>(), 0, 1, 3072, 3073, 3074, 30'729'999, 30'730'001, 30'733'073);
  test::write_zeros(dir / which, bytes);
  REQUIRE_THAT(error_of(dir.path(), {}),
               ContainsSubstring(str((dir / which).string(), " must have 30730000 bytes")) &&
                   ContainsSubstring(str("got ", bytes, " bytes")));
}

TEST_CASE("short files of whole records are accepted only when asked for", "[data][cifar][A17]") {
  const test::TempDir dir;
  write_set(dir.path(), 2 * kRecord);
  REQUIRE_THAT(error_of(dir.path(), {}), ContainsSubstring("got 6146 bytes"));
  const CifarOptions options{.allow_short = true};
  const Split split = read_cifar(dir.path(), options);
  REQUIRE(split.train.size() == 10);
  REQUIRE(split.test.size() == 2);

  const auto bytes = GENERATE(as<std::uintmax_t>(), 0, 1, 3072, 3074, 30'729'999, 30'730'001);
  test::write_zeros(dir / "data_batch_3.bin", bytes);
  REQUIRE_THAT(error_of(dir.path(), options), ContainsSubstring("positive multiple of 3073") &&
                                                  ContainsSubstring(str("got ", bytes, " bytes")));
}

TEST_CASE("a label of 10 is refused with its file and record number", "[data][cifar][A17][error]") {
  const test::TempDir dir;
  write_set(dir.path(), 4 * kRecord);
  test::overwrite_byte(dir / "data_batch_2.bin", 3 * kRecord, 9);
  REQUIRE(read_cifar(dir.path(), {.allow_short = true}).train.labels[7] == 9);
  test::overwrite_byte(dir / "data_batch_2.bin", 3 * kRecord, 10);
  REQUIRE_THAT(error_of(dir.path(), {.allow_short = true}),
               ContainsSubstring(str("label of record 3 in ", (dir / "data_batch_2.bin").string())) &&
                   ContainsSubstring("below 10; got 10"));
}

TEST_CASE("four of the five training files are not enough", "[data][cifar][A17][error]") {
  const test::TempDir dir;
  write_set(dir.path(), kRecord);
  const auto missing = GENERATE(as<std::string>(), "data_batch_1.bin", "data_batch_5.bin", "test_batch.bin");
  fs::remove(dir / missing);
  // Also when the limit makes reading it unnecessary.
  for (const std::int64_t limit : {1, 100})
    REQUIRE_THAT(error_of(dir.path(), {.allow_short = true, .limit_train = limit}),
                 ContainsSubstring(str("missing file ", (dir / missing).string())) &&
                     ContainsSubstring("data_batch_1.bin, data_batch_2.bin") &&
                     ContainsSubstring("test_batch.bin in"));
}

TEST_CASE("only regular files are read", "[data][cifar][A17][error]") {
  const test::TempDir dir;
  write_set(dir.path(), kRecord);
  const fs::path victim = dir / "data_batch_4.bin";
  fs::remove(victim);
  SECTION("a directory") {
    fs::create_directory(victim);
    REQUIRE_THAT(error_of(dir.path(), {.allow_short = true}),
                 ContainsSubstring(str(victim.string(), ": must be a regular file; got a directory")));
  }
  SECTION("a pipe, which would block a reader for ever") {
    REQUIRE(mkfifo(victim.c_str(), 0600) == 0);
    REQUIRE_THAT(error_of(dir.path(), {.allow_short = true}),
                 ContainsSubstring(str(victim.string(), ": must be a regular file; got a pipe")));
  }
  SECTION("a link to itself") {
    fs::create_symlink(victim, victim);
    REQUIRE_THAT(error_of(dir.path(), {.allow_short = true}),
                 ContainsSubstring(victim.string()) && ContainsSubstring("symbolic links"));
  }
  SECTION("a file without permission") {
    test::write_zeros(victim, kRecord);
    fs::permissions(victim, fs::perms::none);
    // The superuser reads everything.
    const std::string expected =
        geteuid() == 0 ? "accepted" : str(victim.string(), ": cannot be read; Permission");
    REQUIRE_THAT(error_of(dir.path(), {.allow_short = true}), ContainsSubstring(expected));
  }
}

TEST_CASE("a directory that does not exist is refused by name", "[data][cifar][error]") {
  REQUIRE_THAT(error_of("/no/such/place", {}),
               ContainsSubstring("/no/such/place must be a directory that holds"));
}

TEST_CASE("a limit takes the first records across files", "[data][cifar]") {
  const test::TempDir dir;
  write_set(dir.path(), 2 * kRecord);
  // Mark record i of the training set by label i and a first pixel of 100 + i.
  for (int i = 0; i < 10; ++i) {
    const fs::path file = dir / kFiles[static_cast<std::size_t>(i / 2)];
    test::overwrite_byte(file, i % 2 * 3073, static_cast<char>(i));
    test::overwrite_byte(file, i % 2 * 3073 + 1, static_cast<char>(100 + i));
  }
  const Split split = read_cifar(dir.path(), {.allow_short = true, .limit_train = 5, .limit_test = 1});
  REQUIRE(split.train.labels == std::vector<std::uint8_t>{0, 1, 2, 3, 4});
  REQUIRE(split.test.size() == 1);
  for (int i = 0; i < 5; ++i) REQUIRE(split.train.images.data<std::uint8_t>()[i * 3072] == 100 + i);
  REQUIRE(read_cifar(dir.path(), {.allow_short = true, .limit_train = 99}).train.size() == 10);
  REQUIRE_THAT(error_of(dir.path(), {.allow_short = true, .limit_train = 0}),
               ContainsSubstring("limits must be at least 1; got train 0"));

  // Files beyond the limit are not read, so a bad label there goes unseen; within it it does not.
  test::overwrite_byte(dir / "data_batch_4.bin", 0, 77);
  REQUIRE(error_of(dir.path(), {.allow_short = true, .limit_train = 6}) == "accepted");
  REQUIRE_THAT(error_of(dir.path(), {.allow_short = true, .limit_train = 7}),
               ContainsSubstring("label of record 0"));
}

TEST_CASE("a record is a label and three planes in the order red, green, blue", "[data][cifar]") {
  const test::TempDir dir;
  write_set(dir.path(), kRecord);
  test::overwrite_byte(dir / "test_batch.bin", 0, 7);
  test::overwrite_byte(dir / "test_batch.bin", 1 + 0 * 1024 + 2 * 32 + 3, 11);  // red, row 2, column 3
  test::overwrite_byte(dir / "test_batch.bin", 1 + 1 * 1024 + 31 * 32, 22);     // green, row 31, column 0
  test::overwrite_byte(dir / "test_batch.bin", 1 + 2 * 1024 + 31, 33);          // blue, row 0, column 31
  const Dataset set = read_cifar(dir.path(), {.allow_short = true}).test;
  const auto pixel = [&](int c, int y, int x) {
    return set.images.select(0, 0).select(0, c).select(0, y).select(0, x).item();
  };
  REQUIRE(set.labels[0] == 7);
  REQUIRE(pixel(0, 2, 3) == 11);
  REQUIRE(pixel(1, 31, 0) == 22);
  REQUIRE(pixel(2, 0, 31) == 33);
}

TEST_CASE("CIFAR-100 uses the fine label and checks both", "[data][cifar]") {
  const test::TempDir dir;
  const fs::path root = dir / "cifar-100-binary";
  const CifarOptions options{.kind = CifarKind::cifar100, .allow_short = true};
  for (const char* name : {"train.bin", "test.bin"}) test::write_zeros(root / name, 3 * 3074);
  test::overwrite_byte(root / "train.bin", 2 * 3074, 19);
  test::overwrite_byte(root / "train.bin", 2 * 3074 + 1, 99);
  test::overwrite_byte(root / "train.bin", 2 * 3074 + 2, 55);
  const Split split = read_cifar(dir.path(), options);
  REQUIRE(split.train.classes == 100);
  REQUIRE(split.train.labels == std::vector<std::uint8_t>{0, 0, 99});
  REQUIRE(split.train.images.data<std::uint8_t>()[2 * 3072] == 55);

  REQUIRE_THAT(error_of(dir.path(), {.kind = CifarKind::cifar100}),
               ContainsSubstring("must have 153700000 bytes"));
  test::overwrite_byte(root / "train.bin", 3074, 20);
  REQUIRE_THAT(error_of(dir.path(), options),
               ContainsSubstring("label of record 1") && ContainsSubstring("below 20"));
  test::overwrite_byte(root / "train.bin", 3074, 0);
  test::overwrite_byte(root / "train.bin", 3074 + 1, 100);
  REQUIRE_THAT(error_of(dir.path(), options), ContainsSubstring("below 100; got 100"));
}
