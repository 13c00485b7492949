// SPDX-License-Identifier: MIT
// dist/mpi/arrival_board.cpp - the slots in the shared memory.
#include "dist/mpi/arrival_board.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "dist/job_watch.h"
#include "dist/shm/progress_slot.h"

namespace brigade::dist {
namespace {

// A listener that does not answer must not keep this rank from starting.
constexpr std::chrono::seconds kPatience{2};

// How launchers name a job to its processes, the same for all of them and for nobody else at that time: PMIx (Open MPI,
// srun --mpi=pmix), Open MPI by itself, Slurm. MPICH's mpiexec gives no name.
std::string job_name() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"})
    if (std::string value = variable(name); !value.empty()) return value;
  const std::string job = variable("SLURM_JOB_ID"), step = variable("SLURM_STEP_ID");
  return job.empty() || step.empty() ? "" : str(job, ".", step);
}

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  static_cast<void>(gethostname(name, sizeof name - 1));
  return name;
}

}  // namespace

// On cache lines of its own: its rank writes while others read theirs.
struct alignas(64) ArrivalBoard::Slot {
  std::atomic<Place> place;
  std::atomic<pid_t> process;
  std::atomic<std::uint64_t> numbering;  // Of processes: the namespace in which `process` means something.
  std::atomic<bool> watched;
  std::atomic<std::uint32_t> left;  // 0: no, 1: being written, 2: there.
  char last_words[1000];
  ProgressSlot progress;
};

ArrivalBoard::ArrivalBoard(const LaunchEnvironment& self, const std::string& name, Descriptor memory,
                           std::optional<Handover> handover)
    : self_(self), name_(name), memory_(std::move(memory)), handover_(std::move(handover)) {}

std::shared_ptr<ArrivalBoard> ArrivalBoard::attach(const LaunchEnvironment& self, Place here) {
  const std::string job = job_name();
  if (!self.mpi || job.empty()) return nullptr;
  // Had it two, the second could lie elsewhere if the rank that served the first has gone in between.
  static std::mutex mutex;
  static std::weak_ptr<ArrivalBoard> of_process;
  const std::lock_guard lock(mutex);
  if (std::shared_ptr<ArrivalBoard> board = of_process.lock()) {
    board->come_to(here);
    return board;
  }
  const std::string name = str("brigade-", getuid(), "-", job, "-", host_name());
  // Who was stopped while it serves keeps the name: the others meet elsewhere, and miss it.
  std::shared_ptr<ArrivalBoard> board = attach(self, name, here);
  if (!board) board = attach(self, name + "-again", here);
  of_process = board;
  return board;
}

std::shared_ptr<ArrivalBoard> ArrivalBoard::attach(const LaunchEnvironment& self, const std::string& name,
                                                   Place here) {
  const auto bytes = sizeof(Slot) * static_cast<std::size_t>(self.size);
  std::shared_ptr<ArrivalBoard> board;
  // All local ranks come here at about the same time: one of them gets the name, the others ask it. Between its bind
  // and its listen a name is taken but does not answer, hence more than one try.
  const auto deadline = Clock::now() + kPatience;
  while (!board && Clock::now() < deadline) {
    if (Descriptor memory = ask_for_memory(name, kPatience)) {
      board.reset(new ArrivalBoard(self, name, std::move(memory), std::nullopt));
    } else if (auto handover = Handover::listen(name)) {
      Descriptor fresh = make_memory(static_cast<std::int64_t>(bytes));
      if (!fresh) return nullptr;
      board.reset(new ArrivalBoard(self, name, std::move(fresh), std::move(handover)));
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  if (!board) return nullptr;
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, board->memory_.get(), 0);
  if (mapped == MAP_FAILED) return nullptr;
  board->slots_ = static_cast<Slot*>(mapped);  // Zero bytes, which are empty slots.
  Slot& mine = board->slots_[self.rank];
  mine.numbering = process_numbering();
  mine.process = getpid();
  board->come_to(here);
  return board;
}

ArrivalBoard::~ArrivalBoard() {
  if (slots_ != nullptr) munmap(slots_, sizeof(Slot) * static_cast<std::size_t>(self_.size));
}

void ArrivalBoard::serve() noexcept {
  const std::lock_guard lock(mutex_);
  if (handover_) handover_->serve(memory_);
}

void ArrivalBoard::stop_serving() noexcept {
  const std::lock_guard lock(mutex_);
  handover_.reset();
}

void ArrivalBoard::take_over() noexcept {
  const std::lock_guard lock(mutex_);
  if (!handover_) handover_ = Handover::listen(name_);
}

int ArrivalBoard::door() const {
  const std::lock_guard lock(mutex_);
  return handover_ ? handover_->door() : -1;
}

void ArrivalBoard::come_to(Place place) noexcept {
  slots_[self_.rank].place.store(place, std::memory_order_release);
}

void ArrivalBoard::report(const Progress& progress) noexcept { slots_[self_.rank].progress.write(progress); }

bool ArrivalBoard::all_came_to(Place place) const {
  for (int rank = 0; rank < self_.size; ++rank)
    if (slots_[rank].place.load(std::memory_order_acquire) < place) return false;
  return true;
}

std::string ArrivalBoard::arrivals(Place place) const {
  const auto size = static_cast<std::size_t>(self_.size);
  std::vector<bool> arrived(size), elsewhere(size);
  std::vector<Progress> progress(size);
  int not_started = self_.local_size;
  for (std::size_t rank = 0; rank < size; ++rank) {
    const Place there = slots_[rank].place.load(std::memory_order_acquire);
    arrived[rank] = there >= place;
    // The launcher says how many ranks are here, not which: with several hosts an empty slot may be anybody's.
    elsewhere[rank] = there == kNowhere && self_.local_size < self_.size;
    if (there != kNowhere) --not_started;
    progress[rank] = slots_[rank].progress.read();
    // A process that has not come to MPI yet may be reading data, for example.
    const char* const where = slots_[rank].process.load() != 0 ? "not at MPI_Init yet" : "not started";
    if (there == kNowhere) std::strncpy(progress[rank].phase, where, sizeof progress[rank].phase - 1);
  }
  std::string out = describe_arrivals(arrived, progress, elsewhere);
  // It may have come before it was stopped.
  for (int rank = 0; rank < self_.size; ++rank)
    if (const pid_t there = process(rank); there != 0 && is_stopped(there))
      out += str("; rank ", rank, " is stopped by a signal");
  if (self_.local_size < self_.size && not_started > 0)
    out += str("; of this host's ", self_.local_size, " ranks ", not_started, " did not start");
  return out;
}

pid_t ArrivalBoard::process(int rank) const {
  const pid_t process = slots_[rank].process.load();
  return process != 0 && slots_[rank].numbering.load() == slots_[self_.rank].numbering.load() ? process : 0;
}

Progress ArrivalBoard::progress(int rank) const { return slots_[rank].progress.read(); }

void ArrivalBoard::leave(const std::string& error) noexcept {
  Slot& mine = slots_[self_.rank];
  std::uint32_t no = 0;
  if (!mine.left.compare_exchange_strong(no, 1)) return;
  error.copy(mine.last_words, sizeof mine.last_words - 1);
  mine.left.store(2);
}

std::optional<std::string> ArrivalBoard::last_words(int rank) const {
  const Slot& slot = slots_[rank];
  if (slot.left.load() != 2) return std::nullopt;
  return std::string(slot.last_words, strnlen(slot.last_words, sizeof slot.last_words));
}

void ArrivalBoard::set_watched(bool watched) noexcept { slots_[self_.rank].watched = watched; }
bool ArrivalBoard::watched() const { return slots_[self_.rank].watched; }

}  // namespace brigade::dist
