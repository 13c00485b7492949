// SPDX-License-Identifier: MIT
// apps/launch/command.h - the command that starts N ranks here, in the words of the launcher that is there.
// Read before: apps/common/mpi_launcher.h. Read next: group.h.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "apps/common/mpi_launcher.h"

namespace brigade::launch {

enum class Bind {
  none,   ///< Ranks run where the system puts them: right for most, and for more ranks than cores.
  cores,  ///< Each rank gets cores of its own, as many as it has threads.
};

struct Options {
  int ranks = 1;
  int threads = 0;  ///< Of each rank; 0: the program decides.
  Bind bind = Bind::none;
  bool tag = false;  ///< Each line of output with its rank in front, also on a terminal.
  std::string hosts = {}, hostfile = {};
  bool resume = false;  ///< The program is to go on from its newest complete checkpoint ($BRIGADE_RESUME).
  std::vector<std::string> program = {};  ///< With its arguments.
  bool several_hosts() const { return !hosts.empty() || !hostfile.empty(); }
};

/// What the command depends on beside the options.
struct Surroundings {
  bool root = false;
  int cores = 1;    ///< That this process may use.
  int columns = 0;  ///< Of the terminal; 0: none.
};

struct Command {
  std::vector<std::string> words;
  std::vector<std::pair<std::string, std::string>> environment;  ///< To be set for it; an empty value: unset.
  std::vector<std::string> notices;                              ///< Lines for the user.
  std::string text() const;                                      ///< As one would type it.
};

/// Throws Error for what cannot be had: cores of their own for more threads than there are cores.
Command make_command(const Options& options, const apps::MpiLauncher& launcher, const Surroundings& here);

}  // namespace brigade::launch
