// SPDX-License-Identifier: MIT
// apps/launch/command.cpp - the traps of mpirun, each with the words that avoid it.
#include "apps/launch/command.h"

#include <algorithm>
#include <cstdlib>

#include "apps/common/command_line.h"
#include "core/check.h"

namespace brigade::launch {
namespace {

using Words = std::vector<std::string>;

void add(Words& words, const Words& more) { words.insert(words.end(), more.begin(), more.end()); }

// A setting of Open MPI's library. What the user has set wins, and a word of the command would not let it.
void add_setting(Words& words, const std::string& name, const std::string& value) {
  if (std::getenv(("OMPI_MCA_" + name).c_str()) == nullptr) add(words, {"--mca", name, value});
}

void add_open_mpi(Command& command, const Options& o, const apps::MpiVersion& version, bool root,
                  int threads) {
  Words& words = command.words;
  const bool prrte = version.major() >= 5;  // Release 5 has a new launcher, with other words for the same.
  // Quiet about its own part: what a rank has to say it says itself, and how it ended we say.
  words.push_back("--quiet");
  if (root) {
    words.push_back("--allow-run-as-root");
    command.notices.push_back("you are root: mpirun is told to accept that (--allow-run-as-root)");
  }
  // By itself it refuses more ranks than cores ("not enough slots"). On several hosts it is their list that says how
  // many ranks each takes, and overruling it would pile all of them on the first.
  const bool oversubscribe = !o.several_hosts();
  if (o.bind == Bind::cores)
    add(words, {"--map-by", str("slot:PE=", threads), "--bind-to", "core"});
  else if (oversubscribe && prrte)
    add(words, {"--map-by", ":OVERSUBSCRIBE"});
  else if (oversubscribe)
    words.push_back("--oversubscribe");
  // By itself it ties each of two ranks to one core, however many there are.
  if (o.bind == Bind::none) add(words, {"--bind-to", "none"});
  // Waiting ranks spin: with fewer cores than ranks they would starve the one they wait for.
  add_setting(words, "mpi_yield_when_idle", "1");
  // Reading a peer's memory needs a permission that containers lack; tried without it, every message prints an error.
  // Release 5 finds out by itself.
  if (!prrte) add_setting(words, "btl_vader_single_copy_mechanism", "none");
  if (o.tag) add(words, prrte ? Words{"--output", "tag"} : Words{"--tag-output"});
  if (!o.hosts.empty()) add(words, {"--host", o.hosts});
  if (!o.hostfile.empty()) add(words, {"--hostfile", o.hostfile});
  // The environment travels to other hosts by name only.
  if (o.several_hosts())
    for (const auto& [name, value] : command.environment)
      if (!value.empty()) add(words, {"-x", name});
}

// Hydra oversubscribes without being asked, accepts root, and its ranks inherit the environment.
void add_mpich(Command& command, const Options& o, int threads) {
  Words& words = command.words;
  add(words, {"-bind-to", o.bind == Bind::none ? "none" : str("core:", threads)});
  if (o.tag) words.push_back("-prepend-rank");
  if (!o.hosts.empty()) add(words, {"-hosts", o.hosts});
  if (!o.hostfile.empty()) add(words, {"-f", o.hostfile});
}

}  // namespace

std::string Command::text() const {
  Words all;
  if (!environment.empty()) all.push_back("env");
  for (const auto& [name, value] : environment)
    add(all, value.empty() ? Words{"-u", name} : Words{str(name, "=", value)});
  add(all, words);
  return apps::command_line(all);
}

Command make_command(const Options& o, const apps::MpiLauncher& launcher, const Surroundings& here) {
  // Cores of its own make a rank count only those: it must be told how many threads are meant.
  const int threads = o.threads > 0           ? o.threads
                      : o.bind == Bind::cores ? std::max(1, here.cores / o.ranks)
                                              : 0;
  BRIGADE_CHECK(o.bind == Bind::none || o.several_hosts() || o.ranks * threads <= here.cores,
                "--bind cores: needs a core for each thread; got ", o.ranks, " ranks x ", threads,
                " threads and ", here.cores, " cores; leave --bind out");
  Command command;
  command.words = {launcher.path, "-np", str(o.ranks)};
  if (threads > 0) command.environment.emplace_back("OMP_NUM_THREADS", str(threads));
  if (o.resume) command.environment.emplace_back("BRIGADE_RESUME", "auto");
  // Ranks write to a pipe, or to a terminal without a size: this is how they learn how wide a line may be, or that
  // nobody looks.
  if (here.columns > 0 && !o.tag)
    command.environment.emplace_back("COLUMNS", str(here.columns));
  else if (std::getenv("COLUMNS") != nullptr)
    command.environment.insert(command.environment.begin(), {"COLUMNS", ""});  // env takes these first.
  if (launcher.version.family == apps::MpiFamily::open_mpi)
    add_open_mpi(command, o, launcher.version, here.root, threads);
  else
    add_mpich(command, o, threads);
  add(command.words, o.program);
  return command;
}

}  // namespace brigade::launch
