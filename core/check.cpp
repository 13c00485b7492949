// SPDX-License-Identifier: MIT
// core/check.cpp - the out-of-line half of core/check.h.
#include "core/check.h"

#include <charconv>

namespace brigade {

void append_text(std::string& out, double value) {
  char text[32];
  auto [end, error] = std::to_chars(text, text + sizeof text, value);
  out.append(text, end);
}

void fail(const std::string& message) { throw Error(message); }

}  // namespace brigade
