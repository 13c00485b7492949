// SPDX-License-Identifier: MIT
// apps/launch/processes.cpp - see the header.
#include "apps/launch/processes.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>

namespace brigade::launch {
namespace {

struct Process {
  pid_t parent = 0;
  char state = '?';
};

// "1234 (a name) S 1 …": the name may hold anything, so read from its last parenthesis.
Process read_process(pid_t id) {
  std::ifstream file("/proc/" + std::to_string(id) + "/stat");
  std::string text;
  std::getline(file, text);
  Process process;
  if (const std::size_t end = text.rfind(") "); end != std::string::npos && end + 2 < text.size()) {
    process.state = text[end + 2];
    process.parent = static_cast<pid_t>(std::atoi(text.c_str() + end + 3));
  }
  return process;
}

bool is_rank(pid_t id) {
  std::ifstream file("/proc/" + std::to_string(id) + "/environ", std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  for (const char* const variable : {"OMPI_COMM_WORLD_RANK=", "PMIX_RANK=", "PMI_RANK="})
    if (text.starts_with(variable) || text.find(std::string(1, '\0') + variable) != std::string::npos)
      return true;
  return false;
}

}  // namespace

std::vector<pid_t> descendants(pid_t ancestor) {
  std::multimap<pid_t, pid_t> children;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const pid_t id = static_cast<pid_t>(std::atoi(entry.path().filename().c_str()));
    if (id <= 0) continue;
    const Process process = read_process(id);
    if (process.parent > 0 && process.state != 'Z' && process.state != 'X')
      children.emplace(process.parent, id);
  }
  std::vector<pid_t> found{ancestor};
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto [begin, end] = children.equal_range(found[i]);
    for (auto child = begin; child != end; ++child) found.push_back(child->second);
  }
  found.erase(found.begin());
  return found;
}

std::vector<pid_t> ranks_below(pid_t launcher) {
  std::vector<pid_t> ranks;
  std::set<pid_t> within;  // Ranks and what descends from them.
  for (const pid_t id : descendants(launcher)) {
    if (within.contains(read_process(id).parent)) {
      within.insert(id);
    } else if (is_rank(id)) {
      within.insert(id);
      ranks.push_back(id);
    }
  }
  return ranks;
}

}  // namespace brigade::launch
