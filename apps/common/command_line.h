// SPDX-License-Identifier: MIT
// apps/common/command_line.h - a command as people type it.
#pragma once

#include <string>
#include <vector>

namespace brigade::apps {

/// The words with spaces between, quoted where a shell would take them apart.
std::string command_line(const std::vector<std::string>& words);

}  // namespace brigade::apps
