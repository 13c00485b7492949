// SPDX-License-Identifier: MIT
// tests/fuzz/manifest.cpp - what a checkpoint says of itself: names of its files stay in its folder.
#include "dist/checkpoint/manifest.h"

#include "tests/fuzz/targets.h"

namespace brigade::fuzz {

void manifest(std::string_view bytes) {
  expect_error_or_success([&] {
    const dist::Manifest read = dist::manifest_from_json(std::string(bytes));
    for (const dist::CheckpointFile& file : read.files)
      require(std::filesystem::path(file.name).filename() == file.name && file.name.front() != '.',
              "a file is beside its manifest");
    const std::string text = dist::manifest_to_json(read);
    require(dist::manifest_to_json(dist::manifest_from_json(text)) == text, "a manifest survives its file");
  });
}

}  // namespace brigade::fuzz
