// SPDX-License-Identifier: MIT
// tests/dist/launch_test.cpp - where a process stands, and how run_ranks starts and names its ranks.
#include "dist/launch.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <future>
#include <map>
#include <mutex>
#include <set>

#include "core/parallel.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::dist;

namespace {

constexpr const char* kVariables[] = {"OMPI_COMM_WORLD_RANK",
                                      "OMPI_COMM_WORLD_SIZE",
                                      "OMPI_COMM_WORLD_LOCAL_SIZE",
                                      "PMI_RANK",
                                      "PMI_SIZE",
                                      "MPI_LOCALNRANKS",
                                      "PMIX_RANK",
                                      "SLURM_NTASKS",
                                      "SLURM_TASKS_PER_NODE"};

// launch_environment() with exactly these variables set.
LaunchEnvironment environment_with(const std::map<std::string, std::string>& variables) {
  for (const char* name : kVariables) unsetenv(name);
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  const LaunchEnvironment environment = launch_environment();
  for (const char* name : kVariables) unsetenv(name);
  return environment;
}

bool same(const LaunchEnvironment& a, const LaunchEnvironment& b) {
  return a.mpi == b.mpi && a.rank == b.rank && a.size == b.size && a.local_size == b.local_size;
}

}  // namespace

TEST_CASE("launch_environment reads what each launcher sets", "[dist][launch]") {
  REQUIRE(same(environment_with({}), {.mpi = false, .rank = 0, .size = 1, .local_size = 1}));
  REQUIRE(same(environment_with({{"OMPI_COMM_WORLD_RANK", "2"},
                                 {"OMPI_COMM_WORLD_SIZE", "8"},
                                 {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}),
               {.mpi = true, .rank = 2, .size = 8, .local_size = 4}));
  REQUIRE(same(environment_with({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}}),
               {.mpi = true, .rank = 1, .size = 2, .local_size = 2}));
  REQUIRE(same(
      environment_with({{"PMIX_RANK", "5"}, {"SLURM_NTASKS", "11"}, {"SLURM_TASKS_PER_NODE", "4(x2),3"}}),
      {.mpi = true, .rank = 5, .size = 11, .local_size = 4}));
  // Inside an allocation, but not started by srun; and nonsense.
  REQUIRE_FALSE(environment_with({{"SLURM_NTASKS", "11"}, {"SLURM_TASKS_PER_NODE", "4"}}).mpi);
  REQUIRE_FALSE(environment_with({{"OMPI_COMM_WORLD_RANK", "x"}, {"OMPI_COMM_WORLD_SIZE", "2"}}).mpi);
}

TEST_CASE("run_ranks runs every rank once on a thread of its own, with its share of the cores",
          "[dist][launch]") {
  std::mutex mutex;
  std::set<int> ranks;
  std::set<std::string> names;
  run_ranks({.backend = "threads", .ranks = 3}, [&](ProcessGroup& group) {
    char name[16] = {};
    pthread_getname_np(pthread_self(), name, sizeof name);
    std::lock_guard lock(mutex);
    ranks.insert(group.rank());
    names.insert(name);
    if (group.size() != 3 || group.backend() != "threads") throw Error("wrong group");
    if (num_threads() != std::max(1, available_cores() / 3)) throw Error("wrong number of threads");
  });
  REQUIRE(ranks == std::set<int>{0, 1, 2});
  REQUIRE(names == std::set<std::string>{"rank0", "rank1", "rank2"});
}

TEST_CASE("run_ranks refuses what it cannot start", "[dist][launch][error]") {
  const auto body = [](ProcessGroup&) {};
  REQUIRE_THROWS_WITH(run_ranks({.backend = "gloo"}, body),
                      ContainsSubstring("\"gloo\"") && ContainsSubstring("auto, threads, mpi"));
  REQUIRE_THROWS_WITH(run_ranks({.backend = "threads", .ranks = 0}, body), ContainsSubstring("got ranks 0"));
  // This program was not started by mpirun; without MPI the message is that it is not compiled in.
  REQUIRE_THROWS_WITH(run_ranks({.backend = "mpi"}, body), ContainsSubstring("backend mpi: "));
  REQUIRE_THROWS_WITH(run_ranks({.backend = "plain_mpi"}, body), ContainsSubstring("backend plain_mpi: "));
  REQUIRE_THROWS_WITH(
      run_ranks({.backend = "threads", .group = {.timeout = std::chrono::milliseconds(0)}}, body),
      ContainsSubstring("timeout must be positive"));
}

TEST_CASE("a rank that goes on after another has failed is reported, so that the program can end",
          "[dist][launch][A26]") {
  std::promise<std::string> report;
  const std::shared_future<std::string> reported = report.get_future().share();
  const auto body = [&](ProcessGroup& group) {
    if (group.rank() == 1) throw Error("no such file: data.bin");
    reported.wait();  // Nothing but the report ends it.
  };
  REQUIRE_THROWS_WITH(run_ranks({.backend = "threads",
                                 .ranks = 2,
                                 .on_stuck = [&](const std::string& error) { report.set_value(error); }},
                                body),
                      "[rank 1/2] no such file: data.bin");
  REQUIRE(reported.get() == "[rank 1/2] no such file: data.bin");
  // Not called, and so nothing to wait for, where all ranks end.
  std::atomic<int> calls{0};
  const auto begin = Clock::now();
  REQUIRE_THROWS_WITH(
      run_ranks({.backend = "threads", .ranks = 2, .on_stuck = [&](const std::string&) { ++calls; }},
                [](ProcessGroup&) { throw Error("both fail"); }),
      ContainsSubstring("both fail"));
  REQUIRE(Clock::now() - begin < std::chrono::seconds(2));
  REQUIRE(calls == 0);
}
