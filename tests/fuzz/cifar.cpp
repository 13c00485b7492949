// SPDX-License-Identifier: MIT
// tests/fuzz/cifar.cpp - a training file beside a test file of one record. CIFAR-100, because its set is two files.
#include <stdlib.h>

#include "data/cifar10.h"
#include "tests/fuzz/targets.h"

namespace brigade::fuzz {
namespace {

// Links to files in memory. Not removed: a process that libFuzzer ends runs no destructor, and it is empty but for two
// links.
std::filesystem::path folder_with(const MemoryFile& train, const MemoryFile& test) {
  std::string name = (std::filesystem::temp_directory_path() / "brigade_fuzz_XXXXXX").string();
  require(mkdtemp(name.data()) != nullptr, "there is a place for a folder");
  const std::filesystem::path folder = name;
  std::filesystem::create_symlink(train.path(), folder / "train.bin");
  std::filesystem::create_symlink(test.path(), folder / "test.bin");
  return folder;
}

}  // namespace

void cifar(std::string_view bytes) {
  constexpr std::size_t kRecord = 2 + 3072;
  static MemoryFile train, test;
  static const std::filesystem::path folder = folder_with(train, test);
  test.hold(std::string(kRecord, '\0'));
  train.hold(bytes);
  expect_error_or_success([&] {
    const data::CifarOptions options{.kind = data::CifarKind::cifar100, .allow_short = true};
    const data::Split split = data::read_cifar(folder, options);
    require(static_cast<std::size_t>(split.train.size()) * kRecord == bytes.size(), "all records are read");
    for (const int label : split.train.labels) require(label < 100, "labels are classes");
  });
}

}  // namespace brigade::fuzz
