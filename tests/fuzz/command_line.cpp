// SPDX-License-Identifier: MIT
// tests/fuzz/command_line.cpp - words and variables for train_resnet18. Words with a slash are left out, so that no
// file of this machine is read.
#include <stdlib.h>

#include <vector>

#include "apps/common/run_main.h"
#include "apps/common/train_options.h"
#include "tests/fuzz/targets.h"

namespace brigade::fuzz {

void command_line(std::string_view bytes) {
  std::vector<std::string> words{"train_resnet18"}, variables;
  for (std::size_t at = 0; at < bytes.size() && words.size() < 64;) {
    const std::size_t end = std::min(bytes.find('\n', at), bytes.size());
    // As the system does it, a word ends at a zero byte.
    const std::string word = std::string(bytes.substr(at, end - at)).c_str();
    at = end + 1;
    const std::size_t equals = word.find('=');
    if (word.find('/') != std::string::npos) continue;
    if (!word.starts_with("BRIGADE_") || equals == std::string::npos) {
      words.push_back(word);
      continue;
    }
    variables.push_back(word.substr(0, equals));
    setenv(variables.back().c_str(), word.c_str() + equals + 1, 1);
  }
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  try {
    const apps::TrainOptions options = apps::parse_train_options(static_cast<int>(words.size()), argv.data());
    static_cast<void>(options.to_json());
    static_cast<void>(options.loading(0, 1));
  } catch (const apps::EarlyExit& exit) {
    require(exit.code == 0 || exit.code == 2, "a usage error exits with 2");
  }
  for (const std::string& variable : variables) unsetenv(variable.c_str());
}

}  // namespace brigade::fuzz
