// SPDX-License-Identifier: MIT
// core/one_line.h - text that a stranger wrote, fit for a message: a terminal must print it and not obey it.
#pragma once

#include <string>
#include <string_view>

namespace brigade {

/// `text` with control characters as "?", and "…" for what it has beyond `longest` bytes.
std::string one_line(std::string_view text, std::size_t longest = 160);

}  // namespace brigade
