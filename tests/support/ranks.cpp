// SPDX-License-Identifier: MIT
// tests/support/ranks.cpp - worlds for tests: threads here, or this process's place under mpiexec.
#define CATCH_CONFIG_EXTERNAL_INTERFACES  // Catch2 2 declares listeners only on request.
#include "tests/support/ranks.h"

#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <mutex>
#include <thread>

#include "dist/shm/shm_transport.h"
#include "dist/tcp/tcp_transport.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

#if __has_include(<catch2/catch_all.hpp>)
using ListenerBase = Catch::EventListenerBase;
#else
using ListenerBase = Catch::TestEventListenerBase;
#endif

namespace brigade::test {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr std::chrono::seconds kWorldTimeout{300};  // Several times slower.
#else
constexpr std::chrono::seconds kWorldTimeout{60};
#endif
constexpr std::chrono::seconds kAbortGrace{10};

// The one MPI job of this process: MPI cannot be started twice.
std::shared_ptr<dist::Job>& job_slot() {
  static std::shared_ptr<dist::Job> job;
  return job;
}

// Ends a world that hangs: first by aborting its groups, then, if a rank stays in its own code, the program.
class Watchdog {
 public:
  Watchdog() : thread_([this] { watch(); }) {}
  ~Watchdog() {
    {
      std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void enter(dist::ProcessGroup& group) {
    std::lock_guard lock(mutex_);
    running_[group.rank()] = &group;
  }
  void leave(const dist::ProcessGroup& group) {
    std::lock_guard lock(mutex_);
    running_.erase(group.rank());
  }

 private:
  void watch() {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, kWorldTimeout, [this] { return over_; })) return;
    const std::string reason =
        str("the test took over ", kWorldTimeout.count(), " s; still running: ranks", ranks());
    for (const auto& [rank, group] : running_) group->abort(reason);
    if (changed_.wait_for(lock, kAbortGrace, [this] { return over_; })) return;
    std::cerr << reason << "; even after the abort:" << ranks() << std::endl;
    std::_Exit(1);
  }
  std::string ranks() const {
    std::string out;
    for (const auto& [rank, group] : running_) out += str(" ", rank);
    return out;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, dist::ProcessGroup*> running_;
  bool over_ = false;
  std::thread thread_;
};

void run_world(const dist::LaunchOptions& options, const std::function<void(dist::ProcessGroup&)>& body) {
  std::string error;
  try {
    Watchdog watchdog;
    dist::run_ranks(options, [&](dist::ProcessGroup& group) {
      struct Presence {
        Watchdog& dog;
        dist::ProcessGroup& group;
        ~Presence() { dog.leave(group); }
      } presence{watchdog, group};
      watchdog.enter(group);
      body(group);
    });
  } catch (const std::exception& e) {
    error = e.what();
  }
  INFO(options.backend << ", ranks: " << options.ranks << ", algorithm: " << options.algorithm);
  if (!error.empty()) FAIL(error);
  SUCCEED();
}

// Ranks that are threads and connected as processes are.
std::function<std::unique_ptr<dist::Transport>(int)> over_sockets(int size) {
  std::vector<std::shared_ptr<dist::MeetingPoint>> places;
  for (int rank = 0; rank < size; ++rank) {
    const int port = rank == 0 ? 0 : places[0]->port();
    places.push_back(std::make_shared<dist::MeetingPoint>(dist::Endpoint{"127.0.0.1", port}, rank, size));
  }
  return [places](int rank) {
    dist::TcpPeers peers = places[static_cast<std::size_t>(rank)]->connect(std::chrono::seconds(20));
    return dist::make_tcp_transport(std::make_shared<dist::TcpLines>(std::move(peers), rank));
  };
}

// Under mpiexec: one voice, and the end of MPI after the last case.
class MpiListener : public ListenerBase {
 public:
  using ListenerBase::ListenerBase;

  void testRunStarting(const Catch::TestRunInfo&) override {
    if (dist::launch_environment().rank == 0) return;
    std::fflush(stdout);
    hidden_ = std::tmpfile();
    stdout_ = dup(STDOUT_FILENO);
    if (hidden_ != nullptr && stdout_ >= 0) dup2(fileno(hidden_), STDOUT_FILENO);
  }

  void testRunEnded(const Catch::TestRunStats& stats) override {
    failed_ = stats.totals.testCases.failed > 0;
    if (!job_slot() || failed_) return;  // Peers may be stuck: no ordered end.
    job_slot()->finish();
    job_slot() = nullptr;
  }

  // After the reporter's last line.
  ~MpiListener() override {
    std::cout.flush();
    std::fflush(stdout);
    if (failed_ && hidden_ != nullptr) {
      std::rewind(hidden_);
      char line[512];
      while (std::fgets(line, sizeof line, hidden_) != nullptr) std::fputs(line, stderr);
    }
    // With MPI not ended, mpiexec ends the other ranks because of the code.
    if (failed_ && job_slot()) std::_Exit(1);
  }

 private:
  std::FILE* hidden_ = nullptr;  // What ranks other than 0 print, shown only if they fail.
  int stdout_ = -1;
  bool failed_ = false;
};
CATCH_REGISTER_LISTENER(MpiListener)

}  // namespace

std::string device() {
  const char* const wanted = std::getenv("BRIGADE_TEST_DEVICE");
  return wanted != nullptr ? wanted : "cpu";
}

bool under_mpi() {
  const dist::LaunchEnvironment self = dist::launch_environment();
  return self.mpi || self.torchrun;
}

std::shared_ptr<dist::Job> mpi_job() {
  if (under_mpi() && !job_slot())
    job_slot() = dist::launch_environment().mpi ? dist::join_mpi_job() : dist::join_torchrun_job();
  return job_slot();
}

void for_each_world(const std::function<void(dist::ProcessGroup&)>& body, const WorldOptions& options) {
  dist::LaunchOptions launch{.backend = "threads",
                             .algorithm = options.algorithm,
                             .group = options.group,
                             .device = options.network ? "cpu" : device(),
                             .network = options.network};
  const char* const chosen = std::getenv("BRIGADE_TEST_BACKEND");
  const bool torchrun = dist::launch_environment().torchrun;
  const std::string backend = chosen != nullptr ? chosen : torchrun ? "tcp" : under_mpi() ? "mpi" : "threads";
  if (under_mpi()) {
    launch.backend = backend;
    launch.ranks = dist::launch_environment().size;
    launch.job = mpi_job();
    run_world(launch, body);
    return;
  }
  for (const int size : options.sizes) {
    launch.ranks = size;
    if (backend == "shared_memory")
      launch.connect = [memory = dist::HostMemory::make(size)](int rank) {
        return dist::make_shm_transport(memory, rank);
      };
    if (backend == "tcp") launch.connect = over_sockets(size);
    run_world(launch, body);
  }
}

void require(bool condition, const std::string& message) {
  if (!condition) throw Error(message);
}

void require_same(const Tensor& a, const Tensor& b, const std::string& message) {
  if (a.device() != Device{} || b.device() != Device{}) return require_same(a.to({}), b.to({}), message);
  // memcmp first: differs_bitwise copies, and tests compare a million elements.
  if (a.dtype() == b.dtype() && a.shape() == b.shape() && a.is_contiguous() && b.is_contiguous() &&
      (a.numel() == 0 || std::memcmp(a.raw(), b.raw(), static_cast<std::size_t>(a.bytes())) == 0))
    return;
  const std::string difference = differs_bitwise(a, b);
  if (!difference.empty()) throw Error(str(message, ": ", difference));
}

void require_contains(const std::string& text, const std::string& part) {
  if (text.find(part) == std::string::npos) throw Error(str("expected \"", part, "\" in \"", text, "\""));
}

bool lies_in_shared_memory(const std::byte* memory) {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    unsigned long begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) != 2) continue;
    const auto at = reinterpret_cast<unsigned long>(memory);
    if (begin <= at && at < end) return line.find("memfd:brigade") != std::string::npos;
  }
  return false;
}

std::string thrown_by(const std::function<void()>& action) {
  try {
    action();
  } catch (const dist::CommError& e) {
    return str("CommError: ", e.what());
  } catch (const Error& e) {
    return str("Error: ", e.what());
  } catch (const std::exception& e) {
    return str("other: ", e.what());
  }
  return "";
}

}  // namespace brigade::test
