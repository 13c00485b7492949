// SPDX-License-Identifier: MIT
// dist/tcp/torchrun_job.cpp - the environment, and transports made of sockets and shared memory.
#include "dist/tcp/torchrun_job.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <thread>
#include <utility>
#include <vector>

#include "core/one_line.h"
#include "dist/shm/shm_transport.h"
#include "dist/shm/two_level_transport.h"
#include "dist/tcp/tcp_transport.h"

namespace brigade::dist {
namespace {

constexpr int kMostRanks = 1 << 16, kLastPort = 65535;
constexpr std::size_t kLongestName = 253;  // Of a host, RFC 1035.
// Ranks that call themselves neighbours may be unable to reach each other's sockets (containers).
constexpr std::chrono::seconds kPatience{2};

std::string text_of(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr ? value : "";
}

// An integer of [least, most], and nothing else.
int number_of(const char* variable, int least, int most) {
  const std::string text = text_of(variable);
  int value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  BRIGADE_CHECK(code == std::errc() && end == text.data() + text.size() && value >= least && value <= most,
                "torchrun's environment: ", variable, " must be a number from ", least, " to ", most, "; ",
                text.empty() ? "it is not set" : "got \"" + one_line(text) + "\"");
  return value;
}

// Machines by the number that a boot gets, as two may have one name; BRIGADE_HOST tells ranks apart that are on one.
std::string name_of_host() {
  char name[256] = {};
  static_cast<void>(gethostname(name, sizeof name - 1));
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return str(name, " ", boot, " ", text_of("BRIGADE_HOST"));
}

// Memory of the ranks on this host, which are `size`. Collective over all ranks of `all`; nullptr on all of them where
// some host cannot share any.
std::shared_ptr<HostMemory> share_memory(Transport& all, int leader, int rank_here, int size_here) {
  std::string name;
  Descriptor memory;
  std::optional<Handover> handover;
  if (rank_here == 0 && size_here > 1) {
    name = str("brigade-", getuid(), "-", getpid(), "-", Clock::now().time_since_epoch().count());
    memory = HostMemory::make_shared_memory(size_here);
    if (memory) handover = Handover::listen(name);
  } else if (size_here == 1) {
    memory = HostMemory::make_shared_memory(1);
  }
  const std::string there = gather_texts(all, handover ? name : "")[static_cast<std::size_t>(leader)];
  if (rank_here != 0 && !there.empty()) {
    memory = ask_for_memory(there, kPatience);
  } else if (handover) {
    const auto deadline = Clock::now() + kPatience;
    int served = 0;
    while ((served += handover->serve(memory)) < size_here - 1 && Clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  auto mapped = HostMemory::map(memory, size_here);
  bool all_have = true;
  for (const std::string& has : gather_texts(all, mapped ? "yes" : "no")) all_have = all_have && has == "yes";
  return all_have ? mapped : nullptr;
}

}  // namespace

std::optional<TorchrunEnvironment> torchrun_environment() {
  if (text_of("RANK").empty() || text_of("WORLD_SIZE").empty()) return std::nullopt;
  TorchrunEnvironment self;
  self.size = number_of("WORLD_SIZE", 1, kMostRanks);
  self.rank = number_of("RANK", 0, kMostRanks - 1);
  BRIGADE_CHECK(self.rank < self.size,
                "torchrun's environment: RANK must be below WORLD_SIZE; got RANK=", self.rank,
                ", WORLD_SIZE=", self.size);
  if (!text_of("LOCAL_RANK").empty()) static_cast<void>(number_of("LOCAL_RANK", 0, self.size - 1));
  if (self.size == 1) return self;  // Nobody to meet.
  self.master = {text_of("MASTER_ADDR"), number_of("MASTER_PORT", 1, kLastPort)};
  BRIGADE_CHECK(!self.master.host.empty(),
                "torchrun's environment: MASTER_ADDR must be where rank 0 can be reached; it is not set");
  const std::string& host = self.master.host;
  BRIGADE_CHECK(host.size() <= kLongestName && one_line(host, kLongestName) == host,
                "torchrun's environment: MASTER_ADDR must be a name or number of at most ", kLongestName,
                " printable characters; got ", host.size(), ", \"", one_line(host), "\"");
  // torchrun's own process listens at that port, and speaks another language there.
  if (text_of("TORCHELASTIC_USE_AGENT_STORE") == "True") ++self.master.port;
  BRIGADE_CHECK(
      self.master.port <= kLastPort, "torchrun's environment: MASTER_PORT must be below ", kLastPort,
      " where torchrun's own process is at that port (TORCHELASTIC_USE_AGENT_STORE=True) and rank 0 "
      "takes the next; got ",
      kLastPort);
  const bool loopback = host == "localhost" || host == "::1" || host.starts_with("127.");
  self.local_size = loopback ? self.size : 1;
  if (!text_of("LOCAL_WORLD_SIZE").empty()) self.local_size = number_of("LOCAL_WORLD_SIZE", 1, self.size);
  return self;
}

TorchrunJob::TorchrunJob(const TorchrunEnvironment& self, std::chrono::milliseconds timeout)
    : timeout_(timeout), meeting_(self.master, self.rank, self.size), stream_(make_worker_stream("comm")) {}

std::unique_ptr<Transport> TorchrunJob::connect(InHost in_host) {
  const auto lines = std::make_shared<TcpLines>(meeting_.connect(timeout_), meeting_.rank());
  auto all = make_tcp_transport(lines);
  if (in_host != InHost::shared_memory) return all;

  const std::vector<std::string> hosts = gather_texts(*all, name_of_host());
  const std::string& mine = hosts[static_cast<std::size_t>(all->rank())];
  std::vector<int> leaders;  // The first rank of each host.
  int leader = -1, rank_here = 0, size_here = 0;
  for (int r = 0; r < all->size(); ++r) {
    const auto at = hosts.begin() + r;
    if (std::find(hosts.begin(), at, *at) == at) leaders.push_back(r);
    if (*at != mine) continue;
    if (leader < 0) leader = r;
    if (r < all->rank()) ++rank_here;
    ++size_here;
  }
  if (static_cast<int>(leaders.size()) == all->size()) return all;
  const std::shared_ptr<HostMemory> memory = share_memory(*all, leader, rank_here, size_here);
  if (!memory) return all;
  constexpr const char* kName = "tcp + shared memory";
  auto here = make_shm_transport(memory, rank_here, {.name = kName});
  if (leaders.size() == 1) {
    all->close();  // The connections have done their work.
    return here;
  }
  TwoLevels levels{.here = nullptr, .all = std::move(all), .name = kName};
  levels.arrivals = [lines, memory_of = here.get()] {
    const auto waits = lines->arrivals();
    return waits ? *waits : memory_of->arrivals();
  };
  levels.here = std::move(here);
  if (rank_here == 0) levels.across = make_tcp_transport(lines, leaders);
  return make_two_level_transport(std::move(levels));
}

std::shared_ptr<Job> join_torchrun_job(std::chrono::milliseconds timeout) {
  const auto self = torchrun_environment();
  BRIGADE_CHECK(
      self && self->size > 1,
      "backend tcp: needs RANK, WORLD_SIZE above 1, MASTER_ADDR and MASTER_PORT in the environment, as "
      "torchrun sets them");
  return std::make_shared<TorchrunJob>(*self, timeout);
}

}  // namespace brigade::dist
