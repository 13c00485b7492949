// SPDX-License-Identifier: MIT
// apps/launch/hosts.cpp - a list of hosts, and a command that is run on each of them.
#include "apps/launch/hosts.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <sstream>
#include <thread>

#include "core/check.h"

extern char** environ;

namespace brigade::launch {
namespace {

// Longer than ssh takes to give up by itself when told ConnectTimeout=5.
constexpr std::chrono::seconds kPatience{8};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

std::vector<std::string> agent() {
  const char* const named = std::getenv("OMPI_MCA_plm_rsh_agent");
  const std::vector<std::string> words = split(named != nullptr ? named : "", ' ');
  return words.empty()
             ? std::vector<std::string>{"ssh", "-n", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5"}
             : words;
}

bool is_this_host(const std::string& host) {
  char name[HOST_NAME_MAX + 1] = {};
  static_cast<void>(gethostname(name, sizeof name - 1));
  return host == "localhost" || host == "127.0.0.1" || host == name;
}

}  // namespace

LivingHosts living_hosts(const std::string& hosts, const std::function<bool(const std::string&)>& answers) {
  LivingHosts living;
  for (const std::string& entry : split(hosts, ',')) {
    const std::size_t colon = entry.rfind(':');
    const std::string name = entry.substr(0, colon);
    int slots = 1;
    if (colon != std::string::npos) {
      const char* const end = entry.data() + entry.size();
      const auto [stop, error] = std::from_chars(entry.data() + colon + 1, end, slots);
      BRIGADE_CHECK(error == std::errc{} && stop == end && slots > 0, "--hosts: must be like a:2,b:2; got ",
                    hosts);
    }
    if (!answers(name)) {
      living.lost.push_back(name);
      continue;
    }
    living.hosts += str(living.hosts.empty() ? "" : ",", entry);
    living.ranks += slots;
  }
  return living;
}

bool host_answers(const std::string& host) {
  if (is_this_host(host)) return true;
  std::vector<std::string> words = agent();
  words.insert(words.end(), {host, "true"});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = -1;
  if (posix_spawnp(&child, arguments[0], nullptr, nullptr, arguments.data(), environ) != 0) return false;
  int status = 0;
  for (const auto until = std::chrono::steady_clock::now() + kPatience;
       waitpid(child, &status, WNOHANG) == 0;) {
    if (std::chrono::steady_clock::now() > until) kill(child, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace brigade::launch
