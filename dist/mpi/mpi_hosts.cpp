// SPDX-License-Identifier: MIT
// dist/mpi/mpi_hosts.cpp - see the header.
#include "dist/mpi/mpi_hosts.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "core/stream.h"
#include "dist/mpi/mpi_calls.h"
#include "dist/shm/handover.h"

namespace brigade::dist {
namespace {

// Ranks that MPI takes for neighbours may be unable to reach each other's sockets (containers).
constexpr std::chrono::seconds kPatience{2};

using Name = std::array<char, 64>;

Name as_name(const char* text) {
  Name name{};
  if (text != nullptr) std::strncpy(name.data(), text, name.size() - 1);
  return name;
}

MPI_Comm split(MPI_Comm comm, int color, int key) {
  MPI_Comm part = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(comm, color, key, &part), "MPI_Comm_split");
  if (part != MPI_COMM_NULL)
    check_mpi(MPI_Comm_set_errhandler(part, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return part;
}

int all_reduce(int value, MPI_Op op) {
  int result = 0;
  check_mpi(MPI_Allreduce(&value, &result, 1, MPI_INT, op, MPI_COMM_WORLD), "MPI_Allreduce");
  return result;
}

}  // namespace

MpiHosts::MpiHosts() {
  int rank = 0, rank_there = 0, size_there = 1;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &world_size_), "MPI_Comm_size");
  MPI_Comm machine = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &machine),
            "MPI_Comm_split_type");
  check_mpi(MPI_Comm_rank(machine, &rank_there), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(machine, &size_there), "MPI_Comm_size");

  const Name mine = as_name(std::getenv("BRIGADE_HOST"));
  std::vector<Name> names(static_cast<std::size_t>(size_there));
  check_mpi(MPI_Allgather(mine.data(), mine.size(), MPI_CHAR, names.data(), mine.size(), MPI_CHAR, machine),
            "MPI_Allgather");
  int first = 0;  // Rank of the machine with the same name.
  while (names[static_cast<std::size_t>(first)] != mine) ++first;
  here_ = split(machine, first, rank_there);
  check_mpi(MPI_Comm_free(&machine), "MPI_Comm_free");
  check_mpi(MPI_Comm_rank(here_, &rank_here_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(here_, &size_here_), "MPI_Comm_size");
  across_ = split(MPI_COMM_WORLD, rank_here_ == 0 ? 0 : MPI_UNDEFINED, rank);
  count_ = all_reduce(rank_here_ == 0 ? 1 : 0, MPI_SUM);
}

std::shared_ptr<HostMemory> MpiHosts::share_here() const {
  // A new name each time, which the others are told: nobody can meet a listener of another job or of an earlier group.
  Name name =
      as_name(str("brigade-", getuid(), "-", getpid(), "-", Clock::now().time_since_epoch().count()).c_str());
  Descriptor memory;
  std::optional<Handover> handover;
  if (rank_here_ == 0) {
    memory = HostMemory::make_shared_memory(size_here_);
    if (memory && size_here_ > 1) handover = Handover::listen(name.data());
    if (!memory || (!handover && size_here_ > 1)) name.fill('\0');
  }
  check_mpi(MPI_Bcast(name.data(), static_cast<int>(name.size()), MPI_CHAR, 0, here_), "MPI_Bcast");
  if (name[0] == '\0') return nullptr;
  if (rank_here_ != 0) {
    memory = ask_for_memory(name.data(), kPatience);
  } else if (handover) {
    const auto deadline = Clock::now() + kPatience;
    int served = 0;
    while ((served += handover->serve(memory)) < size_here_ - 1 && Clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return HostMemory::map(memory, size_here_);
}

std::shared_ptr<HostMemory> MpiHosts::share_memory() const {
  auto memory = share_here();
  return all_reduce(memory ? 1 : 0, MPI_MIN) == 1 ? memory : nullptr;
}

}  // namespace brigade::dist
