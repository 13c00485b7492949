// SPDX-License-Identifier: MIT
// apps/launch/launch_main.cpp - launch -n 4 -- PROGRAM: ranks without mpirun's traps, for Open MPI and MPICH.
// Read next: command.cpp (the traps), group.h (signals and exit codes).
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>

#include "apps/common/run_main.h"
#include "apps/launch/command.h"
#include "apps/launch/group.h"
#include "apps/launch/hosts.h"
#include "core/check.h"
#include "core/parallel.h"

using namespace brigade;
using apps::MpiFamily;
using apps::MpiLauncher;
using apps::MpiVersion;

namespace {

struct Flags {
  launch::Options options;
  std::string mpirun, bind = "none";
  double grace = 30;
  int max_restarts = 0;
  bool dry_run = false, quiet = false;
};

// The launcher to use: the one that was named, else the first on the PATH that is of the family that the programs
// beside this one are built for.
MpiLauncher choose_launcher(const Flags& flags, std::vector<std::string>& notices) {
  const std::optional<MpiVersion> library = apps::mpi_of_this_build();
  const MpiFamily wanted = library ? library->family : MpiFamily::open_mpi;
  const char* const variable = std::getenv("MPIRUN");
  const std::string named = !flags.mpirun.empty() ? flags.mpirun : variable != nullptr ? variable : "";
  std::optional<MpiLauncher> other;
  for (const std::string& name : named.empty() ? apps::mpi_launcher_names(wanted) : std::vector{named}) {
    const auto found = apps::find_mpi_launcher(name);
    if (!found) continue;
    if (found->version.family == wanted || (!library && found->version.family != MpiFamily::unknown)) {
      if (other)
        notices.push_back(str(other->path, " is ", other->version.text(), ", the programs are built for ",
                              library->text(), ": taking ", found->path));
      return *found;
    }
    if (!other) other = found;
  }
  const std::string install = apps::how_to_install_launcher(wanted);
  BRIGADE_CHECK(other, "launch: needs a launcher of MPI; found no ",
                named.empty() ? "mpirun or mpiexec on the PATH" : named, "; ", install,
                ", or run ranks as threads: PROGRAM --ranks ", flags.options.ranks);
  BRIGADE_CHECK(other->version.family != MpiFamily::unknown,
                "launch: must be the launcher of Open MPI or MPICH; got ", other->path,
                ", whose --version names neither; ", install);
  const std::string mixed =
      str(other->path, " is ", other->version.text(), ", but the programs are built for ", library->text(),
          ", and each rank would take itself for rank 0 of 1");
  // Who names one may know better: the program need not be one of ours.
  BRIGADE_CHECK(!named.empty(), "launch: ", mixed, "; ", install, ", or name another one with --mpirun");
  notices.push_back(mixed);
  return *other;
}

launch::Surroundings look_around() {
  launch::Surroundings here{.root = geteuid() == 0, .cores = available_cores()};
  winsize size{};
  // Where the ranks' words will go to; standard error is as good.
  if (isatty(STDOUT_FILENO) != 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) here.columns = size.ws_col;
  return here;
}

void say(const std::string& line) { std::fprintf(stderr, "launch: %s\n", line.c_str()); }

// Said whatever --quiet says: a job that has failed is no detail.
void prepare_restart(Flags& flags, int restart, int code) {
  launch::Options& options = flags.options;
  options.resume = true;
  if (!options.hosts.empty()) {
    const launch::LivingHosts living = launch::living_hosts(options.hosts, launch::host_answers);
    BRIGADE_CHECK(living.ranks > 0, "launch: none of the hosts ", options.hosts,
                  " answers; not started again");
    for (const std::string& host : living.lost)
      say(str("host ", host, " does not answer; going on without it"));
    options.hosts = living.hosts;
    if (!living.lost.empty()) options.ranks = std::min(options.ranks, living.ranks);
  }
  say(str("the job ended with code ", code, "; restart ", restart, " of ", flags.max_restarts, " with ",
          options.ranks, options.ranks == 1 ? " rank" : " ranks",
          ", from the newest complete checkpoint if it saved one"));
}

void add_flags(CLI::App& app, Flags& flags) {
  launch::Options& o = flags.options;
  app.add_option("-n,--ranks", o.ranks, "Processes")->check(CLI::Range(1, 1'000'000))->required();
  app.add_option(
         "--threads", o.threads,
         "Compute threads of each rank (OMP_NUM_THREADS); default: the program shares the cores evenly")
      ->check(CLI::Range(1, 1024));
  app.add_option("--bind", flags.bind, "none, or cores: each rank gets cores of its own, one a thread")
      ->check(CLI::IsMember({"none", "cores"}))
      ->capture_default_str();
  app.add_flag("--tag", o.tag, "Put the rank in front of each line of output");
  const auto hosts =
      app.add_option("--hosts", o.hosts, "Hosts and ranks on each, as the launcher takes them: a:2,b:2")
          ->type_name("HOST[:N],...");
  app.add_option("--hostfile", o.hostfile, "The same from a file")->type_name("FILE")->excludes(hosts);
  app.add_option(
         "--mpirun", flags.mpirun,
         "The launcher; default: $MPIRUN, else the first on the PATH that fits what this was built for")
      ->type_name("FILE");
  app.add_option("--grace", flags.grace,
                 "Seconds that ranks get after Ctrl-C or SIGTERM, to save what they have")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  app.add_option(
         "--max-restarts", flags.max_restarts,
         "Start a job that failed again, so many times; BRIGADE_RESUME=auto tells the program to go on from "
         "its "
         "newest complete checkpoint, if it saves any (--save-every, --save-seconds). Of --hosts those that "
         "do not answer are left out, with their ranks")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_flag("--dry-run", flags.dry_run, "Print the command instead of running it");
  app.add_flag("-q,--quiet", flags.quiet, "No notices");
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app(
      "Starts a program on N ranks of MPI, with what mpirun wants to be told on this machine: as root, with "
      "more\n"
      "ranks than cores, in containers; the same for Open MPI and MPICH. Ctrl-C and SIGTERM reach all ranks, "
      "and when\n"
      "one rank fails, all end. The exit code is the ranks'.\n"
      "  launch -n 4 -- build/bin/train_resnet18 --data DIR\n"
      "  launch -n 8 --hosts a:4,b:4 -- build/bin/train_resnet18 --data DIR",
      "launch");
  std::vector<std::string>
      stray;  // What stands where options belong; this line of --help is for what stands behind.
  app.add_option("PROGRAM", stray, "What to start, and its arguments, behind a --");
  add_flags(app, flags);
  // What follows -- is not ours to understand.
  char** const end = argv + argc;
  char** const split =
      std::find_if(argv, end, [](const char* word) { return std::string_view(word) == "--"; });
  try {
    app.parse(static_cast<int>(split - argv), argv);
    flags.options.bind = flags.bind == "cores" ? launch::Bind::cores : launch::Bind::none;
    if (!stray.empty()) throw CLI::ValidationError(stray[0], "the program stands behind a --");
    if (split != end) flags.options.program.assign(split + 1, end);
    if (flags.options.program.empty()) throw CLI::ValidationError("--", "the program to start must follow");
    // A launcher would say it once a rank. On other hosts it may be elsewhere.
    if (const std::string& name = flags.options.program[0];
        !flags.options.several_hosts() && apps::find_program(name).empty())
      throw CLI::ValidationError(name, "no such program");
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ExtrasError&) {
    std::fprintf(stderr,
                 "launch: no flag of launch: %s; the program and its flags stand behind a --; see --help\n",
                 app.remaining().front().c_str());
    return 2;
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "launch: %s; see --help\n", error.what());
    return 2;
  }

  int code = 0;
  const int failed = apps::run_main([&] {
    std::vector<std::string> notices;
    const MpiLauncher launcher = choose_launcher(flags, notices);
    for (int restarts = 0;; ++restarts) {
      const launch::Command command = make_command(flags.options, launcher, look_around());
      if (restarts == 0) notices.insert(notices.end(), command.notices.begin(), command.notices.end());
      if (!flags.quiet)
        for (const std::string& notice : notices) say(notice);
      notices.clear();
      if (flags.dry_run) {
        std::printf("%s\n", command.text().c_str());
        return;
      }
      const launch::Outcome outcome = run_group(
          command, {.several_hosts = flags.options.several_hosts(),
                    .grace = std::chrono::milliseconds(static_cast<std::int64_t>(flags.grace * 1e3))});
      code = outcome.code;
      if (!may_restart(outcome) || restarts == flags.max_restarts) return;
      prepare_restart(flags, restarts + 1, code);
    }
  });
  return failed != 0 ? failed : code;
}
