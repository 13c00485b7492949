// SPDX-License-Identifier: MIT
// tests/core/safetensors_test.cpp - files go round unchanged, and nothing malformed gets in.
#include "core/safetensors.h"

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;

namespace {

/// A folder that vanishes with the test.
struct Folder {
  Folder() : path(std::filesystem::temp_directory_path() / str("brigade-safetensors-", getpid())) {
    std::filesystem::create_directories(path);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::filesystem::path path;
};

std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::filesystem::path write_file(const Folder& folder, const std::string& header, std::size_t data_bytes) {
  const std::filesystem::path path = folder.path / "case.safetensors";
  std::ofstream file(path, std::ios::binary);
  const std::uint64_t length = header.size();
  file.write(reinterpret_cast<const char*>(&length), 8);
  file << header << std::string(data_bytes, '\1');
  return path;
}

std::string entry(const std::string& shape, const std::string& offsets,
                  const std::string& dtype = "\"F32\"") {
  return "{\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

}  // namespace

TEST_CASE("tensors of every dtype, shape and stride come back from a file unchanged", "[core][safetensors]") {
  const Folder folder;
  NamedTensors tensors;
  for (const DType dtype : kAllDTypes) tensors.emplace_back(str("t.", dtype), test::random({3, 5}, 1, dtype));
  tensors.emplace_back("scalar", test::random({}, 2, DType::i64));
  tensors.emplace_back("empty", Tensor::empty({0, 7}));
  tensors.emplace_back("transposed", test::random({4, 6}, 3).transpose(0, 1));
  tensors.emplace_back("transposed bool", test::random({4, 6}, 3, DType::boolean).transpose(0, 1));
  tensors.emplace_back("channels last",
                       test::random({2, 3, 4, 5}, 4, DType::f32, MemoryFormat::channels_last));
  tensors.emplace_back("a \"quoted\"\n\xc3\xa9 name", test::random({2}, 5));

  const auto path = folder.path / "all.safetensors";
  save_safetensors(path, tensors, {{"epoch", "3"}});
  const SafetensorsFile file = load_safetensors(path);

  REQUIRE(file.metadata == Metadata{{"epoch", "3"}});
  REQUIRE(file.tensors.size() == tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    CHECK(file.tensors[i].first == tensors[i].first);
    CHECK(file.tensors[i].second.dtype() == tensors[i].second.dtype());
    CHECK(test::differs_bitwise(file.tensors[i].second, tensors[i].second) == "");
  }
}

TEST_CASE("the bytes of a file are those of the format", "[core][safetensors]") {
  const Folder folder;
  const auto path = folder.path / "one.safetensors";
  save_safetensors(path, {{"w", Tensor::from<float>({1, 2}, {2})}});
  const std::string header = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  const std::string bytes = read_bytes(path);
  REQUIRE(bytes.substr(0, 8) == std::string(1, static_cast<char>(padded.size())) + std::string(7, '\0'));
  REQUIRE(bytes.substr(8, padded.size()) == padded);
  REQUIRE(bytes.substr(8 + padded.size()) == std::string("\x00\x00\x80\x3f\x00\x00\x00\x40", 8));
}

TEST_CASE("tensors are listed by data offset, whatever the header's order", "[core][safetensors]") {
  const Folder folder;
  const auto path = write_file(folder,
                               "{\"b\":" + entry("[1]", "[4,8]") + ",\"e\":" + entry("[0]", "[4,4]") +
                                   ",\"a\":" + entry("[1]", "[0,4]") + "}",
                               8);
  const SafetensorsFile file = load_safetensors(path);
  REQUIRE(file.tensors.at(0).first == "a");
  REQUIRE(file.tensors.at(1).first == "e");
  REQUIRE(file.tensors.at(2).first == "b");
}

TEST_CASE("a malformed header is refused with the tensor and the rule", "[core][safetensors][error][A20]") {
  struct Case {
    std::string header;
    std::size_t data_bytes;
    std::string message;
  };
  const std::string ok = entry("[1]", "[0,4]");
  const std::vector<Case> cases{
      {"{\"x\":" + ok + ",\"x\":" + ok + "}", 4, "duplicate tensor name x"},
      {"{\"x\":" + ok + ",\"x\":" + entry("[1]", "[4,8]") + "}", 8, "duplicate tensor name x"},
      {"{\"x\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
       "duplicate key dtype"},
      {"{\"x\":" + entry("[1000,1000]", "[0,4]") + "}", 4,
       "\"x\": f32 [1000, 1000] needs 4000000 bytes; data_offsets cover 4"},
      {"{\"x\":" + entry("[1]", "[4,0]") + "}", 4, "data_offsets must lie in order within the 4 bytes"},
      {"{\"x\":" + entry("[2]", "[0,8]") + "}", 4, "data_offsets must lie in order within the 4 bytes"},
      {"{\"x\":" + entry("[4294967296,4294967296]", "[0,0]") + "}", 0, "shape overflows"},
      {"{\"x\":" + entry("[4611686018427387904,2,2,2]", "[0,0]") + "}", 0, "shape overflows"},
      {"{\"x\":" + entry("[18446744073709551615]", "[0,4]", "\"U8\"") + "}", 4, "shape overflows"},
      {"{\"x\":" + entry("[-1]", "[0,4]") + "}", 4, "shape must hold non-negative integers"},
      {"{\"x\":" + entry("[1.0]", "[0,4]") + "}", 4, "shape must hold non-negative integers"},
      {"{\"x\":" + entry("\"1\"", "[0,4]") + "}", 4, "shape must be a list"},
      {"{\"x\":" + entry("[1,1,1,1,1,1,1,1,1]", "[0,4]") + "}", 4, "shape must be a list of at most 8"},
      {"{\"x\":" + entry("[1]", "[-4,0]") + "}", 4, "data_offsets must hold non-negative integers"},
      {"{\"x\":" + entry("[1]", "[0.5,4]") + "}", 4, "data_offsets must hold non-negative integers"},
      {"{\"x\":" + entry("[1]", "[\"0\",4]") + "}", 4, "data_offsets must hold non-negative integers"},
      {"{\"x\":" + entry("[1]", "[0,4,8]") + "}", 4, "data_offsets must be [begin, end]"},
      {"{\"x\":" + entry("[1]", "[0,18446744073709551616]") + "}", 4,
       "data_offsets must hold non-negative integers"},
      {"{\"x\":" + entry("[1]", "[0,4]", "\"F33\"") + "}", 4, "unknown dtype \"F33\""},
      {"{\"x\":" + entry("[1]", "[0,4]", "7") + "}", 4, "dtype must be a string"},
      {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "needs exactly dtype, shape and data_offsets"},
      {"{\"x\":3}", 4, "needs exactly dtype, shape and data_offsets"},
      {"{\"x\":" + ok + ",\"y\":" + entry("[1]", "[2,6]") + "}", 6, "tensor \"y\" overlaps"},
      {"{\"x\":" + ok + ",\"y\":" + entry("[1]", "[8,12]") + "}", 12, "hole of 4 bytes before tensor \"y\""},
      {"{\"x\":" + ok + "}", 7, "3 trailing bytes"},
      {"{\"x\":" + entry("[4]", "[0,4]", "\"F32\"") + "}", 4, "needs 16 bytes"},
      {"{\"__metadata__\":{\"a\":1},\"x\":" + ok + "}", 4, "__metadata__ must be an object of strings"},
      {"{\"__metadata__\":3}", 0, "__metadata__ must be an object of strings"},
      {"[]", 0, "must be a JSON object"},
      {"", 0, "must be a JSON object"},
      {"{\"x\":" + ok, 4, "not JSON"},
      {"{\"x\xff\":" + ok + "}", 4, "not JSON"},
      {"{\"x\":" + std::string(100000, '['), 0, "nested too deep"},
      {"{\"x\":[[[[1]]]]}", 0, "nested too deep"},
  };
  const Folder folder;
  for (const Case& c : cases) {
    const auto path = write_file(folder, c.header, c.data_bytes);
    CAPTURE(c.header.substr(0, 200));
    CHECK_THROWS_WITH(load_safetensors(path),
                      ContainsSubstring(c.message) && ContainsSubstring(path.string()));
  }
}

TEST_CASE("a BOOL byte other than 0 and 1 is refused", "[core][safetensors][error]") {
  const Folder folder;
  const auto path = write_file(folder, "{\"x\":" + entry("[1]", "[0,1]", "\"BOOL\"") + "}", 1);
  REQUIRE(load_safetensors(path).tensors.at(0).second.item() == 1);
  std::fstream(path, std::ios::binary | std::ios::in | std::ios::out).seekp(-1, std::ios::end).put('\2');
  REQUIRE_THROWS_WITH(load_safetensors(path), ContainsSubstring("BOOL elements must be 0 or 1"));
}

TEST_CASE("a file shorter than its header says is refused before anything is allocated",
          "[core][safetensors][error]") {
  const Folder folder;
  const auto path = folder.path / "short";
  const auto write_length = [&](std::uint64_t length, std::size_t bytes) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(&length), static_cast<std::streamsize>(bytes));
  };
  write_length(2, 7);
  CHECK_THROWS_WITH(load_safetensors(path), ContainsSubstring("needs at least 8 bytes; got 7"));
  write_length(2, 8);
  CHECK_THROWS_WITH(load_safetensors(path), ContainsSubstring("reaches beyond the file of 8 bytes"));
  write_length(100'000'001, 8);
  CHECK_THROWS_WITH(load_safetensors(path), ContainsSubstring("under 100 MB"));
  write_length(~std::uint64_t{0}, 8);
  CHECK_THROWS_WITH(load_safetensors(path), ContainsSubstring("under 100 MB"));
  CHECK_THROWS_WITH(load_safetensors(folder.path / "absent"), ContainsSubstring("No such file"));
  CHECK_THROWS_AS(load_safetensors(folder.path), Error);
}

TEST_CASE("saving refuses names that could not be read back", "[core][safetensors][error]") {
  const Folder folder;
  const auto path = folder.path / "x.safetensors";
  const Tensor t = Tensor::zeros({1});
  CHECK_THROWS_WITH(save_safetensors(path, {{"a", t}, {"a", t}}),
                    ContainsSubstring("duplicate tensor name a"));
  CHECK_THROWS_WITH(save_safetensors(path, {{"__metadata__", t}}), ContainsSubstring("reserved"));
  CHECK_THROWS_WITH(save_safetensors(path, {{"\xff", t}}), ContainsSubstring("UTF-8"));
  CHECK_THROWS_WITH(save_safetensors(path, {{"a", Tensor()}}), ContainsSubstring("undefined"));
  CHECK_THROWS_WITH(save_safetensors(folder.path / "no" / "x", {{"a", t}}),
                    ContainsSubstring("No such file"));
  REQUIRE(std::filesystem::is_empty(folder.path));
}

TEST_CASE("a failed save leaves the old file and no other", "[core][safetensors][error]") {
  const Folder folder;
  const auto path = folder.path / "x.safetensors";
  save_safetensors(path, {{"a", Tensor::from<float>({7}, {1})}});

  // A file size limit makes write() fail half way, as a full disk does.
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto old_action = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  std::string message;
  try {
    save_safetensors(path, {{"a", Tensor::zeros({1 << 16})}});
  } catch (const Error& error) {
    message = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_action);

  CHECK_THAT(message, ContainsSubstring(path.string()) && ContainsSubstring("File too large") &&
                          ContainsSubstring("bytes needed"));
  REQUIRE(load_safetensors(path).tensors.at(0).second.item() == 7);
  REQUIRE(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 1);
}
