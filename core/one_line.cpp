// SPDX-License-Identifier: MIT
// core/one_line.cpp - see the header.
#include "core/one_line.h"

#include <algorithm>

namespace brigade {

std::string one_line(std::string_view text, std::size_t longest) {
  std::string out(text.substr(0, longest));
  std::replace_if(
      out.begin(), out.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return text.size() > longest ? out + "…" : out;
}

}  // namespace brigade
