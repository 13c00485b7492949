// SPDX-License-Identifier: MIT
// dist/launch.cpp - ranks as threads of this process, or this process as a rank of a job.
#include "dist/launch.h"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <typeinfo>
#include <utility>

#include "core/fault_point.h"
#include "core/parallel.h"
#include "dist/algorithms/algorithms.h"
#include "dist/device_choice.h"
#include "dist/emulated/emulated_transport.h"
#include "dist/tcp/torchrun_job.h"
#include "dist/threads/thread_transport.h"

namespace brigade::dist {
namespace {

// The leading number of an environment variable ("4" and SLURM's "4(x2),3" give 4), or -1.
int number(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return -1;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  return end == text || value < 0 || value > 1'000'000 ? -1 : static_cast<int>(value);
}

// Launchers and the variables in which they tell rank, size and ranks on this host.
struct Launcher {
  const char *rank, *size, *local_size;
};
constexpr Launcher kLaunchers[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},  // OpenMPI's mpirun
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"},                                     // MPICH, srun --mpi=pmi2
    {"PMIX_RANK", "SLURM_NTASKS", "SLURM_TASKS_PER_NODE"},                           // srun --mpi=pmix
};

// Compute threads of a rank that is a process. OMP_NUM_THREADS speaks of one process, and cores that a launcher has
// given to each rank cannot be told from cores that all share.
int threads_of_process(int local_ranks) {
  const int wanted = number("OMP_NUM_THREADS");
  return wanted > 0 ? wanted : std::max(1, available_cores() / local_ranks);
}

// The backend's transport behind what the options ask for, and beside it that of a device. A chosen algorithm runs over
// the modelled links message by message; without one the model takes whole collectives as rings.
std::unique_ptr<Transport> decorated(std::unique_ptr<Transport> transport, const LaunchOptions& options) {
  if (options.network) transport = make_emulated_transport(std::move(transport), *options.network);
  if (options.algorithm != "auto")
    transport = make_algorithm_transport(std::move(transport), find_algorithm(options.algorithm));
  return with_device(std::move(transport), options.device, options.group.timeout,
                     options.network ? "its network is modelled" : "");
}

// How long the ranks that have not failed get to end by themselves before on_stuck is called: they notice at their next
// collective.
constexpr std::chrono::seconds kGrace{3};

std::string where(int rank, int size) { return size > 1 ? str("[rank ", rank, "/", size, "] ") : ""; }

// The error with its rank in front. Derived and foreign types pass unchanged: somebody looks for them.
[[noreturn]] void rethrow_from(int rank, int size, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const CommError& e) {
    if (typeid(e) != typeid(CommError)) throw;
    // It names its rank already; once is enough.
    const std::string who = str("rank ", rank, "/", size, ": ");
    const std::string_view text = e.what();
    throw CommError(str(where(rank, size), text.substr(text.starts_with(who) ? who.size() : 0)));
  } catch (const Error& e) {
    if (typeid(e) != typeid(Error)) throw;
    throw Error(where(rank, size) + e.what());
  }
}

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an unknown error";
  }
}

std::string text_with_rank(int rank, int size, const std::exception_ptr& error) {
  try {
    rethrow_from(rank, size, error);
  } catch (...) {
    return text_of(std::current_exception());
  }
}

bool is_comm_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const CommError&) {
    return true;
  } catch (...) {
    return false;
  }
}

// The body on one connected rank. A failure ends the group for the peers, after `failed` has been told.
void run_rank(ProcessGroup& group, const std::function<void(ProcessGroup&)>& body,
              const std::function<void(std::exception_ptr)>& failed) {
  try {
    body(group);
    group.enter("the end");
    fault_point(FaultAt::exit);
    group.close();
  } catch (...) {
    failed(std::current_exception());
    group.abort(
        str("rank ", group.rank(), "/", group.size(), " failed: ", text_of(std::current_exception())));
  }
}

void run_threads(const LaunchOptions& options, const std::function<void(ProcessGroup&)>& body) {
  const int size = options.ranks;
  const auto hub = make_hub(size);
  const auto connect = [&](int rank) {
    return decorated(options.connect ? options.connect(rank) : make_thread_transport(hub, rank), options);
  };
  std::mutex mutex;
  std::condition_variable changed;
  int failed_rank = -1, running = size;
  std::exception_ptr failure;
  // Peers of a failed rank fail with CommErrors, usually later: any other error is nearer to the cause.
  const auto record = [&](int rank, const std::exception_ptr& error) {
    std::lock_guard lock(mutex);
    if (failure && (!is_comm_error(failure) || is_comm_error(error))) return;
    failure = error;
    failed_rank = rank;
    changed.notify_all();
  };

  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      pthread_setname_np(pthread_self(), str("rank", rank).c_str());
      set_num_threads(std::max(1, available_cores() / size));
      set_fault_rank(rank, FaultThreads::this_one);
      try {
        fault_point(FaultAt::start);
        ProcessGroup group([&] { return connect(rank); }, options.group);
        run_rank(group, body, [&](const std::exception_ptr& error) { record(rank, error); });
      } catch (...) {
        record(rank, std::current_exception());  // No group: its peers end by their time-out.
      }
      std::lock_guard lock(mutex);
      --running;
      changed.notify_all();
    });
  }
  if (options.on_stuck) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return running == 0 || failure; });
    if (!changed.wait_for(lock, kGrace, [&] { return running == 0; })) {
      const std::string error = text_with_rank(failed_rank, size, failure);
      lock.unlock();
      options.on_stuck(error);
    }
  }
  for (std::thread& thread : threads) thread.join();
  if (failure) rethrow_from(failed_rank, size, failure);
}

// This process as a rank of a job. `backend` is mpi, plain_mpi or tcp.
void run_process(const LaunchOptions& options, const LaunchEnvironment& environment,
                 const std::string& backend, const std::function<void(ProcessGroup&)>& body) {
  const bool tcp = backend == "tcp";
  BRIGADE_CHECK(
      tcp || environment.mpi, "backend ", backend,
      ": needs a process started by mpirun; start it as launch -n N -- PROGRAM or mpirun -np N PROGRAM");
  BRIGADE_CHECK(options.ranks == 1 || options.ranks == environment.size, "backend ", backend,
                ": the number of ranks is ", tcp ? "WORLD_SIZE" : "mpirun's -np", "; got ranks ",
                options.ranks, " and ", tcp ? "WORLD_SIZE " : "-np ", environment.size);
  set_fault_rank(environment.rank, FaultThreads::all);
  fault_point(FaultAt::start);
  const auto join = tcp ? join_torchrun_job : join_mpi_job;
  const std::shared_ptr<Job> job = options.job ? options.job : join(options.group.timeout);
  set_num_threads(threads_of_process(environment.local_size));
  const InHost in_host = backend == "plain_mpi" ? InHost::mpi : InHost::shared_memory;
  std::exception_ptr failure;
  {
    std::optional<ProcessGroup> group;
    try {
      group.emplace([&] { return decorated(job->connect(in_host), options); }, options.group, job->stream());
    } catch (const CommError& error) {
      const std::string arrivals = job->arrivals();
      throw CommError(str(error.what(), arrivals.empty() ? "" : "; ", arrivals));
    }
    run_rank(*group, body, [&](std::exception_ptr error) { failure = std::move(error); });
  }
  if (failure) rethrow_from(environment.rank, environment.size, failure);
  if (!options.job) job->finish();
}

}  // namespace

LaunchEnvironment launch_environment() {
  for (const Launcher& launcher : kLaunchers) {
    const int rank = number(launcher.rank), size = number(launcher.size);
    if (rank < 0 || size < 1) continue;
    // One rank a host is the safe guess for who does not say: too many threads are slow, not wrong.
    return {.mpi = true, .rank = rank, .size = size, .local_size = std::max(1, number(launcher.local_size))};
  }
  try {
    if (const auto self = torchrun_environment())
      return {.torchrun = true, .rank = self->rank, .size = self->size, .local_size = self->local_size};
  } catch (const Error&) {  // Said where ranks start.
  }
  return {};
}

int ranks_on_this_host(int ranks) {
  const LaunchEnvironment environment = launch_environment();
  return environment.size > 1 ? environment.local_size : ranks;
}

std::vector<std::string_view> algorithm_names() {
  std::vector<std::string_view> names{"auto"};
  for (const Algorithm& algorithm : algorithms()) names.push_back(algorithm.name);
  return names;
}

void run_ranks(const LaunchOptions& options, const std::function<void(ProcessGroup&)>& body) {
  BRIGADE_CHECK(options.ranks >= 1, "run_ranks: needs at least one rank; got ranks ", options.ranks);
  // An unknown name is an error before anything starts.
  if (options.algorithm != "auto") static_cast<void>(find_algorithm(options.algorithm));
  BRIGADE_CHECK(!options.network || options.device != "cuda",
                "run_ranks: a modelled network carries tensors of the CPU; got device ", options.device);
  const LaunchEnvironment environment = launch_environment();
  std::string backend = options.backend;
  if (backend == "auto") {
    // Read once more where nobody has launched this process otherwise: now what is wrong with it is said.
    const bool torchrun = !environment.mpi && torchrun_environment() && environment.size > 1;
    backend = environment.mpi ? "mpi" : torchrun ? "tcp" : "threads";
  }
  if (backend == "mpi" || backend == "plain_mpi" || backend == "tcp") {
    run_process(options, environment, backend, body);
  } else {
    std::string choices;
    for (const std::string_view name : backend_names()) choices += str(choices.empty() ? "" : ", ", name);
    BRIGADE_CHECK(backend == "threads", "backend: must be a known name; got \"", options.backend,
                  "\"; choose from ", choices);
    run_threads(options, body);
  }
}

}  // namespace brigade::dist
