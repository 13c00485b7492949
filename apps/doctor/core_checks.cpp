// SPDX-License-Identifier: MIT
// apps/doctor/core_checks.cpp - which cores there are, who may use them, and with how many threads.
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "apps/common/load_meter.h"
#include "apps/doctor/checks.h"
#include "core/check.h"
#include "core/parallel.h"

namespace brigade::doctor {
namespace {

int cores_of_machine() { return std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN))); }

std::string cores_text(int count) { return str(count, count == 1 ? " core" : " cores"); }

// "0-3,8" for the cores in this process's mask.
std::string core_list() {
  cpu_set_t mask;
  if (sched_getaffinity(getpid(), sizeof mask, &mask) != 0) return "?";
  const auto has = [&](int core) {
    return core < CPU_SETSIZE && CPU_ISSET(static_cast<std::size_t>(core), &mask);
  };
  std::string list;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!has(core)) continue;
    const int first = core;
    while (has(core + 1)) ++core;
    list += str(list.empty() ? "" : ",", first);
    if (core > first) list += str("-", core);
  }
  return list;
}

// The reverse. What cannot be read is no core.
std::set<int> cores_in(const std::string& list) {
  std::set<int> cores;
  std::istringstream parts(list);
  for (std::string part; std::getline(parts, part, ',');) {
    int first = 0, last = 0;
    const int numbers = std::sscanf(part.c_str(), "%d-%d", &first, &last);
    if (numbers < 1) continue;
    for (int core = first; core <= (numbers == 2 ? last : first); ++core) cores.insert(core);
  }
  return cores;
}

// Cores' worth of time that the container gets (cgroup version 2, else 1); 0: no limit.
double core_quota() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double quota = 0, period = 0;
  if (file) {
    if (file >> quota >> period && period > 0) return quota / period;  // "max" is no number.
    return 0;
  }
  std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") >> quota;
  std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_period_us") >> period;
  return quota > 0 && period > 0 ? quota / period : 0;
}

}  // namespace

Finding check_cores() {
  const int all = cores_of_machine(), mine = available_cores();
  const double quota = core_quota();
  const std::string line = str(mine, " of ", cores_text(all), " (", core_list(), ")");
  if (quota > 0 && quota < mine - 0.01)
    return warning("cores", fmt::format("{}, but a quota of {:.1f} cores' time", line, quota),
                   "Raise the container's quota (docker run --cpus N), or take no more ranks x threads than "
                   "it.");
  // Under a launcher a rank with its own part of the machine may be right: see check_binding().
  if (mine < all && !dist::launch_environment().mpi)
    return warning("cores", "may use " + line,
                   "Remove the taskset, cpuset or binding around this process, if the other cores are meant "
                   "to compute.");
  return ok("cores", line);
}

Finding check_load() {
  const apps::LoadMeter meter;
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const double busy = meter.foreign_cores();
  if (busy < 0) return ok("load", "the system does not tell whether others are computing");
  const std::string line = fmt::format("others keep {:.1f} of {} busy", busy, cores_text(cores_of_machine()));
  if (busy < 0.25) return ok("load", line);
  return warning(
      "load", line,
      "Wait for them or stop them (top shows who it is): ranks wait for whichever of them gets less.");
}

Finding check_threads() {
  const dist::LaunchEnvironment job = dist::launch_environment();
  const int cores = available_cores();
  const char* const text = std::getenv("OMP_NUM_THREADS");
  if (text != nullptr) {
    const int threads = std::atoi(text);
    if (threads < 1)
      return warning("threads", str("OMP_NUM_THREADS=", text, " is no number of threads"),
                     "Unset OMP_NUM_THREADS.");
    if (threads > cores)
      return warning("threads", str("OMP_NUM_THREADS=", threads, ", but ", cores_text(cores), " to run on"),
                     "Unset OMP_NUM_THREADS, or set it to the cores a rank has.");
    if (threads * job.local_size > cores_of_machine())
      return warning("threads",
                     str(job.local_size, " ranks x OMP_NUM_THREADS=", threads, ", but a machine of ",
                         cores_text(cores_of_machine())),
                     "Unset OMP_NUM_THREADS: ranks then share the cores.");
  }
  // Bound to no cores, every rank counts its places from the first core on.
  for (const char* const variable : {"OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PLACES"}) {
    const char* const value = std::getenv(variable);
    if (job.local_size > 1 && value != nullptr && std::string_view(value) != "false")
      return warning("threads",
                     str(variable, "=", value, " can tie the threads of all ranks to the same cores"),
                     str("Unset ", variable, ", or give each rank its own cores (launch --bind cores)."));
  }
  return ok("threads", text != nullptr ? str("OMP_NUM_THREADS=", text)
                                       : "OMP_NUM_THREADS is not set: ranks share the cores evenly");
}

Finding check_openmp() {
  std::map<std::string, std::string> loaded;  // By runtime: where from.
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const std::size_t slash = line.find('/');
    if (slash == std::string::npos) continue;
    const std::string file = line.substr(line.rfind('/') + 1);
    for (const char* const runtime : {"libgomp", "libomp", "libiomp5"})
      if (file.starts_with(str(runtime, ".so")) || file.starts_with(str(runtime, "-")))
        loaded.emplace(runtime, line.substr(slash));
  }
  std::string list;
  for (const auto& [runtime, path] : loaded) list += str(list.empty() ? "" : ", ", path);
  if (loaded.size() < 2) return ok("openmp", list.empty() ? "no runtime is loaded by itself" : list);
  return fault("openmp", str(loaded.size(), " runtimes are loaded: ", list),
               "Keep one: each makes a pool of threads of its own, and they fight for the cores; look at "
               "LD_PRELOAD, LD_LIBRARY_PATH and what else the program is linked with.");
}

std::string placement() {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  return str(host, " ", core_list());
}

Finding check_binding(const std::vector<std::string>& placements) {
  const char* const remedy =
      "Start with launch -n N -- PROGRAM, or with mpirun --bind-to none; if a taskset or a container stands "
      "around "
      "the launcher, widen that.";
  std::map<std::string, std::vector<std::string>> lists;  // By host: each rank's list.
  for (const std::string& place : placements) {
    const std::size_t space = place.rfind(' ');
    lists[place.substr(0, space)].push_back(place.substr(space + 1));
  }
  // Hosts are taken for alike in how many cores they have: what can be seen from here is this one.
  const auto all = static_cast<std::size_t>(cores_of_machine());
  for (const auto& [host, ranks] : lists) {
    std::set<int> joined;
    for (const std::string& list : ranks) joined.merge(cores_in(list));
    const std::string what =
        str("all ", ranks.size(), " ranks of ", host, " share ", cores_text(static_cast<int>(joined.size())),
            " (", ranks.front(), ") of ", all);
    if (ranks.size() > 1 && joined.size() == 1 && all > 1) return fault("binding", what, remedy);
    if (joined.size() < std::min(ranks.size(), all)) return warning("binding", what, remedy);
    if (joined.size() < all)
      return warning("binding",
                     str(ranks.size(), " ranks of ", host, " have ", joined.size(), " of ", all,
                         " cores between them; rank 0 there has ", ranks.front()),
                     remedy);
  }
  const auto& here = lists.begin()->second;
  const bool alike = std::all_of(here.begin(), here.end(), [&](const auto& l) { return l == here.front(); });
  return ok("binding",
            alike ? str(placements.size(), " ranks, bound to no core of their own (", here.front(), ")")
                  : str(placements.size(), " ranks with cores of their own; the first has ", here.front()));
}

}  // namespace brigade::doctor
