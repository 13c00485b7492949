// SPDX-License-Identifier: MIT
// apps/common/mpi_launcher.cpp - asks launchers and libraries who they are.
#include "apps/common/mpi_launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>

#include "core/check.h"
#include "dist/launch.h"

namespace brigade::apps {
namespace {

// A launcher answers --version at once; one that waits for a network does not help anybody.
constexpr std::chrono::seconds kPatience{10};

bool may_run(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

// What `path --version` prints on either stream; as much as came in time.
std::string version_text(const std::string& path) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    execl(path.c_str(), path.c_str(), "--version", nullptr);
    _exit(127);
  }
  close(ends[1]);
  std::string text;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (child > 0) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd wait{.fd = ends[0], .events = POLLIN, .revents = 0};
    if (left.count() <= 0 || poll(&wait, 1, static_cast<int>(left.count())) <= 0) break;
    char buffer[4096];
    const ssize_t count = read(ends[0], buffer, sizeof buffer);
    if (count <= 0) break;
    text.append(buffer, static_cast<std::size_t>(count));
  }
  close(ends[0]);
  if (child > 0) {
    if (std::chrono::steady_clock::now() >= deadline) kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  return text;
}

// The first number with a point in it: "4.1.4" of "mpirun (Open MPI) 4.1.4".
std::string first_version_number(std::string_view text) {
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!digit(text[i])) continue;
    std::size_t end = i;
    while (end < text.size() && (digit(text[end]) || text[end] == '.')) ++end;
    while (text[end - 1] == '.') --end;
    const std::string_view number = text.substr(i, end - i);
    if (number.find('.') != std::string_view::npos) return std::string(number);
    i = end;
  }
  return {};
}

}  // namespace

std::string MpiVersion::text() const {
  const char* const name = family == MpiFamily::open_mpi ? "Open MPI"
                           : family == MpiFamily::mpich  ? "MPICH"
                                                         : "an unknown MPI";
  return number.empty() ? name : str(name, " ", number);
}

int MpiVersion::major() const { return std::atoi(number.c_str()); }

MpiVersion parse_mpi_version(std::string_view text) {
  const auto says = [&](std::string_view word) { return text.find(word) != std::string_view::npos; };
  MpiVersion version{.number = first_version_number(text)};
  if (says("Open MPI") || says("OpenRTE") || says("PRRTE"))
    version.family = MpiFamily::open_mpi;
  else if (says("HYDRA") || says("MPICH") || says("Intel(R) MPI") || says("MVAPICH"))
    version.family = MpiFamily::mpich;
  return version;
}

std::optional<MpiVersion> mpi_of_this_build() {
  const auto library = dist::mpi_library();
  if (!library) return std::nullopt;
  return parse_mpi_version(library->loaded);
}

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return may_run(name) ? name : std::string();
  const char* const variable = std::getenv("PATH");
  const std::string path = variable != nullptr ? variable : "/usr/bin:/bin";
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find(':', begin), path.size());
    const std::string folder = end == begin ? "." : path.substr(begin, end - begin);
    if (may_run(folder + "/" + name)) return folder + "/" + name;
    begin = end + 1;
  }
  return {};
}

std::optional<MpiLauncher> find_mpi_launcher(const std::string& name) {
  const std::string path = find_program(name);
  if (path.empty()) return std::nullopt;
  return MpiLauncher{.name = name, .path = path, .version = parse_mpi_version(version_text(path))};
}

std::vector<std::string> mpi_launcher_names(MpiFamily family) {
  std::vector<std::string> names{"mpirun", "mpiexec"};
  // Debian's names, there beside each other whichever is the default.
  if (family == MpiFamily::open_mpi) names.insert(names.end(), {"mpirun.openmpi", "mpiexec.openmpi"});
  if (family == MpiFamily::mpich) names.insert(names.end(), {"mpiexec.hydra", "mpiexec.mpich"});
  return names;
}

std::string how_to_install_launcher(MpiFamily family) {
  return family == MpiFamily::mpich ? "apt-get install mpich" : "apt-get install openmpi-bin";
}

}  // namespace brigade::apps
