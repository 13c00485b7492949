// SPDX-License-Identifier: MIT
// tests/apps/train_options_test.cpp - one TrainParser reads many command lines.
#include "apps/common/train_options.h"

#include <stdlib.h>

#include "apps/common/run_main.h"
#include "tests/support/test.h"

using namespace brigade;

namespace {

// What a parser makes of these words: config.json, or the error.
std::string outcome(apps::TrainParser& parser, std::vector<std::string> words) {
  words.insert(words.begin(), "train_resnet18");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  try {
    return parser.parse(static_cast<int>(words.size()), argv.data()).to_json();
  } catch (const apps::EarlyExit& exit) {
    return str(exit.code, ": ", exit.text);
  }
}

}  // namespace

TEST_CASE("a parser reads each command line as a new one would", "[apps][options]") {
  const std::vector<std::vector<std::string>> lines{
      {},
      {"--model", "mlp", "--steps", "3", "--no-augment", "--no-shuffle", "--bucket-mb", "1,2,3"},
      {"--epochs", "2", "--precision", "f16", "--quiet"},
      {"--synthetic", "64", "--sync", "flat", "--net", "1gbit,50us", "--net-schedule", "0:1gbit,9:10gbit"},
      {"--synthetic", "--nesterov", "--cutout", "8", "--plan", "size", "--split-large"},
      {"--steps", "3", "--epochs", "3"},
      {"--nothing-of-that-name"},
      {"--lr", "nan"},
      {"--help"},
      {"--print-config", "--ema", "0.9"},
      {"--completion", "bash"},
      {},
  };
  apps::TrainParser again;
  for (const auto& line : lines) {
    apps::TrainParser fresh;
    REQUIRE(outcome(again, line) == outcome(fresh, line));
    // A variable that is gone has no effect any more.
    setenv("BRIGADE_BATCH_SIZE", "7", 1);
    REQUIRE(outcome(again, line) == outcome(fresh, line));
    unsetenv("BRIGADE_BATCH_SIZE");
    REQUIRE(outcome(again, {}) == outcome(fresh, {}));
  }
}
