// SPDX-License-Identifier: MIT
// tests/core/safetensors_writer_test.cpp - files that are written tensor by tensor, and files that are mapped.
#include <sys/stat.h>

#include <fstream>

#include "core/safetensors.h"
#include "tests/support/failing_file_system.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;

namespace {

NamedTensors sample() {
  NamedTensors tensors;
  for (const DType dtype : kAllDTypes) tensors.emplace_back(str("t.", dtype), test::random({3, 5}, 1, dtype));
  tensors.emplace_back("scalar", test::random({}, 2, DType::i64));
  tensors.emplace_back("empty", Tensor::empty({0, 7}));
  tensors.emplace_back("transposed", test::random({4, 6}, 3).transpose(0, 1));
  return tensors;
}

}  // namespace

TEST_CASE("a file written tensor by tensor has the bytes of one saved at once", "[core][safetensors]") {
  const test::TempDir folder;
  const NamedTensors tensors = sample();
  const FileDigest whole = save_safetensors(folder / "whole", tensors, {{"epoch", "3"}});
  SafetensorsWriter writer(folder / "parts", specs_of(tensors, "test: "), {{"epoch", "3"}});
  for (const auto& [name, tensor] : tensors) writer.add(name, tensor);
  REQUIRE(!std::filesystem::exists(folder / "parts"));
  REQUIRE(writer.commit() == whole);
  REQUIRE(test::read_text(folder / "parts") == test::read_text(folder / "whole"));
  Checksum128 sum;
  const std::string text = test::read_text(folder / "parts");
  sum.update(std::as_bytes(std::span(text)));
  REQUIRE(sum.hex() == whole.xxh3_128);
  REQUIRE(static_cast<std::int64_t>(text.size()) == whole.bytes);
}

TEST_CASE("a writer takes the tensors that were announced, in their order", "[core][safetensors][error]") {
  const test::TempDir folder;
  const Tensor t = Tensor::zeros({2});
  {
    SafetensorsWriter writer(folder / "x", {{"a", DType::f32, {2}}, {"b", DType::f32, {2}}});
    CHECK_THROWS_WITH(writer.add("b", t),
                      ContainsSubstring("the next tensor must be \"a\" f32 [2]; got \"b\""));
  }
  {
    SafetensorsWriter writer(folder / "x", {{"a", DType::f32, {2}}, {"b", DType::f32, {2}}});
    CHECK_THROWS_WITH(writer.add("a", Tensor::zeros({3})), ContainsSubstring("got \"a\" f32 [3]"));
  }
  {
    SafetensorsWriter writer(folder / "x", {{"a", DType::f32, {2}}, {"b", DType::f32, {2}}});
    writer.add("a", t);
    CHECK_THROWS_WITH(writer.commit(), ContainsSubstring("1 tensors are missing, \"b\""));
  }
  {
    SafetensorsWriter writer(folder / "x", {{"a", DType::f32, {2}}});
    writer.add("a", t);
    CHECK_THROWS_WITH(writer.add("b", t), ContainsSubstring("one more, \"b\""));
  }
  REQUIRE(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("a mapped file holds what a read one does, and writing to it changes no file",
          "[core][safetensors]") {
  const test::TempDir folder;
  const auto path = folder / "x";
  save_safetensors(path, sample(), {{"epoch", "3"}});
  const std::string before = test::read_text(path);
  const SafetensorsFile read = load_safetensors(path);
  {
    const SafetensorsFile mapped = map_safetensors(path);
    REQUIRE(mapped.metadata == read.metadata);
    REQUIRE(mapped.tensors.size() == read.tensors.size());
    for (std::size_t i = 0; i < read.tensors.size(); ++i) {
      CHECK(mapped.tensors[i].first == read.tensors[i].first);
      CHECK(test::differs_bitwise(mapped.tensors[i].second, read.tensors[i].second) == "");
    }
    *mapped.tensors.front().second.data<float>() = 7;
  }
  REQUIRE(test::read_text(path) == before);
}

TEST_CASE("a tensor outlives the rest of its mapping", "[core][safetensors]") {
  const test::TempDir folder;
  save_safetensors(folder / "x", {{"a", Tensor::from<float>({1, 2}, {2})}, {"b", Tensor::zeros({2})}});
  const Tensor a = map_safetensors(folder / "x").tensors.front().second;
  std::filesystem::remove(folder / "x");
  REQUIRE(a.to_vector<float>() == std::vector<float>{1, 2});
}

TEST_CASE("elements that another writer has not aligned are read all the same", "[core][safetensors]") {
  const test::TempDir folder;
  const std::string header = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const std::string odd = header + std::string(header.size() % 2 == 0 ? 1 : 2, ' ');  // Of odd length.
  const std::uint64_t length = odd.size();
  {
    std::ofstream file(folder / "x", std::ios::binary);
    file.write(reinterpret_cast<const char*>(&length), 8);
    file << odd << std::string("\x00\x00\x80\x3f\x00\x00\x00\x40", 8);
  }
  REQUIRE(map_safetensors(folder / "x").tensors.at(0).second.to_vector<float>() == std::vector<float>{1, 2});
}

TEST_CASE("neither pipe, device nor directory is taken for a file", "[core][safetensors][error]") {
  const test::TempDir folder;
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  for (const std::filesystem::path& path :
       {folder / "pipe", folder.path(), std::filesystem::path("/dev/zero"),
        std::filesystem::path("/dev/null")}) {
    CHECK_THROWS_WITH(load_safetensors(path), ContainsSubstring("must be a regular file"));
    CHECK_THROWS_WITH(map_safetensors(path), ContainsSubstring("must be a regular file"));
  }
}

TEST_CASE(
    "a disk that is full at whatever byte leaves the old file, and the error says how many bytes are needed",
    "[core][safetensors][error][A19]") {
  const test::TempDir folder;
  const auto path = folder / "x";
  save_safetensors(path, {{"a", Tensor::from<float>({7}, {1})}});
  const NamedTensors large{{"a", Tensor::zeros({16 * 1024})}, {"b", Tensor::zeros({100})}};
  const std::int64_t needed = save_safetensors(folder / "size", large).bytes;
  std::filesystem::remove(folder / "size");
  for (std::int64_t capacity = 0; capacity < needed; capacity += 4096) {
    test::FailingFileSystem files({.capacity = capacity});
    CHECK_THROWS_WITH(save_safetensors(path, large, {}, files),
                      ContainsSubstring(path.string()) && ContainsSubstring("No space left on device") &&
                          ContainsSubstring(str(needed, " bytes needed")));
    REQUIRE(load_safetensors(path).tensors.at(0).second.item() == 7);
    REQUIRE(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
  }
  test::FailingFileSystem enough({.capacity = needed});
  REQUIRE(save_safetensors(path, large, {}, enough).bytes == needed);
}
