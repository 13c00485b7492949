// SPDX-License-Identifier: MIT
// tests/core/safetensors_damage_test.cpp - cut and flipped files: every prefix, every bit of every header.
#include <cstring>

#include "core/safetensors.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;

namespace {

std::string bytes_of(const NamedTensors& tensors, const Metadata& metadata = {}) {
  const test::TempDir folder;
  save_safetensors(folder / "x", tensors, metadata);
  return test::read_text(folder / "x");
}

SafetensorsFile parse(const std::string& bytes) {
  return parse_safetensors(std::as_bytes(std::span(bytes)), "test: ");
}

bool refused(const std::string& bytes) {
  try {
    parse(bytes);
    return false;
  } catch (const Error&) {
    return true;
  }
}

std::vector<std::string> valid_files() {
  NamedTensors dtypes;
  for (const DType dtype : kAllDTypes) dtypes.emplace_back(str("t.", dtype), test::random({2, 3}, 1, dtype));
  return {bytes_of({}), bytes_of({{"w", Tensor::zeros({3})}}), bytes_of(dtypes),
          bytes_of({{"a", test::random({}, 2, DType::i64)}, {"b", Tensor::empty({0, 7})}}, {{"epoch", "3"}}),
          bytes_of({{"layer1.0.conv1.weight", test::random({4, 3, 3, 3}, 4)},
                    {"fc.bias", test::random({10}, 5)}})};
}

// The elements of all tensors one after another, as they lie in the file.
std::string elements(const SafetensorsFile& file) {
  std::string all;
  for (const auto& [name, tensor] : file.tensors)
    all.append(reinterpret_cast<const char*>(tensor.raw()), static_cast<std::size_t>(tensor.bytes()));
  return all;
}

}  // namespace

TEST_CASE("every prefix of a valid file is refused, and so is every longer one",
          "[core][safetensors][error][A21]") {
  for (const std::string& file : valid_files()) {
    REQUIRE(!refused(file));
    for (std::size_t length = 0; length < file.size(); ++length) {
      CAPTURE(length, file.size());
      REQUIRE(refused(file.substr(0, length)));
    }
    REQUIRE(refused(file + '\0'));
  }
}

TEST_CASE("a header with any bit flipped is refused, or says the same of every element",
          "[core][safetensors][error][A21]") {
  int accepted = 0, all = 0;
  for (const std::string& file : valid_files()) {
    const SafetensorsFile before = parse(file);
    std::uint64_t header = 0;
    std::memcpy(&header, file.data(), 8);
    for (std::size_t bit = 0; bit < 8 * (8 + header); ++bit) {
      std::string flipped = file;
      flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
      ++all;
      SafetensorsFile after;
      try {
        after = parse(flipped);
      } catch (const Error&) {
        continue;
      }
      // A name, or a size beside a 0: what a file alone cannot know. A checkpoint's checksum and strict loading do.
      ++accepted;
      CAPTURE(bit, flipped.substr(8, header));
      REQUIRE(after.tensors.size() == before.tensors.size());
      REQUIRE(elements(after) == elements(before));
      for (std::size_t i = 0; i < after.tensors.size(); ++i) {
        REQUIRE(after.tensors[i].second.dtype() == before.tensors[i].second.dtype());
        const bool same = after.tensors[i].second.shape() == before.tensors[i].second.shape();
        REQUIRE((same || after.tensors[i].second.numel() == 0));
      }
    }
  }
  REQUIRE(accepted < all / 4);
}
