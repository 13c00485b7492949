// SPDX-License-Identifier: MIT
// apps/common/command_line.cpp - see the header.
#include "apps/common/command_line.h"

namespace brigade::apps {

std::string command_line(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) {
    if (!out.empty()) out += ' ';
    if (!word.empty() && word.find_first_of(" '\"\\$`&|;<>()*?[]#~!{}\t\n") == std::string::npos) {
      out += word;
      continue;
    }
    out += '\'';
    for (const char c : word) c == '\'' ? out += "'\\''" : out += c;
    out += '\'';
  }
  return out;
}

}  // namespace brigade::apps
