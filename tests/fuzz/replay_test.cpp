// SPDX-License-Identifier: MIT
// tests/fuzz/replay_test.cpp - every input that was ever worth keeping, without libFuzzer: seeds, and in files that
// begin with "found-" what once broke a parser.
#include <fstream>

#include "tests/fuzz/targets.h"
#include "tests/support/test.h"

using namespace brigade;
namespace fs = std::filesystem;

namespace {

void replay(const char* target, void (*run)(std::string_view)) {
  int inputs = 0;
  for (const auto& entry :
       fs::directory_iterator(fs::path(BRIGADE_SOURCE_DIR) / "tests/fuzz/corpus" / target)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    INFO(entry.path());
    REQUIRE_NOTHROW(run(bytes));
    // Cut off anywhere it is another input, and none that may break a parser either.
    const std::size_t step = 1 + bytes.size() / 40;
    for (std::size_t length = 0; length < bytes.size(); length += step)
      REQUIRE_NOTHROW(run(std::string_view(bytes).substr(0, length)));
    ++inputs;
  }
  REQUIRE(inputs >= 2);
}

}  // namespace

TEST_CASE("no kept input breaks the reader of buckets.csv", "[fuzz]") { replay("buckets", fuzz::buckets); }
TEST_CASE("no kept input breaks the reader of CIFAR files", "[fuzz]") { replay("cifar", fuzz::cifar); }
TEST_CASE("no kept input breaks the command line", "[fuzz]") { replay("command_line", fuzz::command_line); }
TEST_CASE("no kept input breaks the reader of --config", "[fuzz]") { replay("config", fuzz::config); }
TEST_CASE("no kept input breaks the reader of manifests", "[fuzz]") { replay("manifest", fuzz::manifest); }
TEST_CASE("no kept input breaks the reader of metrics.jsonl", "[fuzz]") { replay("metrics", fuzz::metrics); }
TEST_CASE("no kept input breaks the reader of plans", "[fuzz]") { replay("plan", fuzz::plan); }
TEST_CASE("no kept input breaks the reader of profiles", "[fuzz]") { replay("profile", fuzz::profile); }
TEST_CASE("no kept input breaks the reader of safetensors", "[fuzz]") {
  replay("safetensors", fuzz::safetensors);
}
TEST_CASE("no kept input breaks the reader of traces", "[fuzz]") { replay("trace", fuzz::trace); }
