// SPDX-License-Identifier: MIT
// dist/mpi/arrival_board.cpp - memory shared through a socket, and the slots in it.
#include "dist/mpi/arrival_board.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace brigade::dist {
namespace {

using Words = std::array<std::uint64_t, sizeof(Progress) / sizeof(std::uint64_t)>;
static_assert(sizeof(Words) == sizeof(Progress) && std::atomic<std::uint64_t>::is_always_lock_free);

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

// Closes itself unless released.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  int get() const { return number_; }
  int release() { return std::exchange(number_, -1); }
  explicit operator bool() const { return number_ >= 0; }

 private:
  int number_;
};

// An abstract socket's name begins with a zero byte and vanishes with its last descriptor.
struct Address {
  explicit Address(const std::string& name) {
    name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                    std::min(name.size(), sizeof address.sun_path - 1));
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  socklen_t length = 0;
};

Descriptor new_socket(int flags = 0) {
  return Descriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
}

// Abstract names have no permissions: whoever is at the other end must be the same user.
bool same_user(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == getuid();
}

// One byte with a file descriptor beside it.
struct Parcel {
  Parcel() {
    message.msg_iov = &content;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
  }
  char byte = 0;
  iovec content{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
};

void hand_over(int socket, int descriptor) {
  Parcel parcel;
  cmsghdr* const attached = CMSG_FIRSTHDR(&parcel.message);
  attached->cmsg_level = SOL_SOCKET;
  attached->cmsg_type = SCM_RIGHTS;
  attached->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(attached), &descriptor, sizeof descriptor);
  static_cast<void>(sendmsg(socket, &parcel.message, MSG_NOSIGNAL));  // Who has gone needs no board.
}

// The memory that the listener at `address` hands out; none if nobody answers.
Descriptor ask(const Address& address) {
  const Descriptor socket = new_socket();
  const timeval patience{.tv_sec = 2,
                         .tv_usec = 0};  // A listener that hangs must not keep this rank from starting.
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  if (connect(socket.get(), address.get(), address.length) != 0 || !same_user(socket.get()))
    return Descriptor();
  Parcel parcel;
  if (recvmsg(socket.get(), &parcel.message, MSG_CMSG_CLOEXEC) != 1) return Descriptor();
  const cmsghdr* const attached = CMSG_FIRSTHDR(&parcel.message);
  if (attached == nullptr || attached->cmsg_type != SCM_RIGHTS) return Descriptor();
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(attached), sizeof descriptor);
  return Descriptor(descriptor);
}

}  // namespace

// On cache lines of its own: its rank writes while others read theirs.
struct alignas(64) ArrivalBoard::Slot {
  std::atomic<Place> place;
  std::atomic<std::uint64_t> version;  // Of `progress`: odd while it is being written.
  std::array<std::atomic<std::uint64_t>, std::tuple_size_v<Words>> progress;

  Progress read() const {
    if (version.load(std::memory_order_acquire) == 0) return {};
    Words words;
    // A writer that died half-way leaves an odd version: after some tries what is there is good enough for a message.
    for (int tries = 0; tries < 100; ++tries) {
      const std::uint64_t before = version.load(std::memory_order_acquire);
      for (std::size_t i = 0; i < words.size(); ++i) words[i] = progress[i].load(std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_acquire);
      if (before % 2 == 0 && version.load(std::memory_order_relaxed) == before) break;
    }
    auto out = std::bit_cast<Progress>(words);
    out.phase[sizeof out.phase - 1] = out.first_pending[sizeof out.first_pending - 1] = '\0';
    return out;
  }
};

ArrivalBoard::ArrivalBoard(const LaunchEnvironment& self, int memory, int listening)
    : self_(self), memory_(memory), listening_(listening) {}

std::shared_ptr<ArrivalBoard> ArrivalBoard::attach(const LaunchEnvironment& self) {
  const std::string job = job_name();
  return self.mpi && !job.empty() ? attach(self, str("brigade-", getuid(), "-", job, "-", host_name()))
                                  : nullptr;
}

std::shared_ptr<ArrivalBoard> ArrivalBoard::attach(const LaunchEnvironment& self, const std::string& name) {
  const Address address(name);
  const auto bytes = sizeof(Slot) * static_cast<std::size_t>(self.size);
  std::shared_ptr<ArrivalBoard> board;
  // All local ranks come here at about the same time: one of them gets the name, the others ask it. Between its bind
  // and its listen a name is taken but does not answer, hence more than one try.
  const auto deadline = Clock::now() + kPatience;
  while (!board && Clock::now() < deadline) {
    Descriptor socket = new_socket(SOCK_NONBLOCK);
    if (Descriptor memory = ask(address)) {
      board.reset(new ArrivalBoard(self, memory.release(), -1));
    } else if (bind(socket.get(), address.get(), address.length) == 0) {
      Descriptor fresh(memfd_create("brigade-arrivals", MFD_CLOEXEC));
      if (!fresh || ftruncate(fresh.get(), static_cast<off_t>(bytes)) != 0 ||
          listen(socket.get(), SOMAXCONN) != 0)
        return nullptr;
      board.reset(new ArrivalBoard(self, fresh.release(), socket.release()));
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  if (!board) return nullptr;
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, board->memory_, 0);
  if (mapped == MAP_FAILED) return nullptr;
  board->slots_ = static_cast<Slot*>(mapped);  // Zero bytes, which are empty slots.
  board->come_to(kProcessStarted);
  return board;
}

ArrivalBoard::~ArrivalBoard() {
  stop_serving();
  close(memory_);
  if (slots_ != nullptr) munmap(slots_, sizeof(Slot) * static_cast<std::size_t>(self_.size));
}

void ArrivalBoard::serve() noexcept {
  while (listening_ >= 0) {
    const Descriptor caller(accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC));
    if (!caller) return;
    if (same_user(caller.get())) hand_over(caller.get(), memory_);
  }
}

void ArrivalBoard::stop_serving() noexcept {
  if (listening_ >= 0) close(std::exchange(listening_, -1));
}

void ArrivalBoard::come_to(Place place) noexcept {
  slots_[self_.rank].place.store(place, std::memory_order_release);
}

void ArrivalBoard::report(const Progress& progress) noexcept {
  Slot& mine = slots_[self_.rank];
  const auto words = std::bit_cast<Words>(progress);
  const std::uint64_t version = mine.version.load(std::memory_order_relaxed);
  mine.version.store(version + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  for (std::size_t i = 0; i < words.size(); ++i) mine.progress[i].store(words[i], std::memory_order_relaxed);
  mine.version.store(version + 2, std::memory_order_release);
}

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
    progress[rank] = slots_[rank].read();
    if (there == kNowhere) std::strncpy(progress[rank].phase, "not started", sizeof progress[rank].phase - 1);
  }
  std::string out = describe_arrivals(arrived, progress, elsewhere);
  if (self_.local_size < self_.size && not_started > 0)
    out += str("; of this host's ", self_.local_size, " ranks ", not_started, " did not start");
  return out;
}

}  // namespace brigade::dist
