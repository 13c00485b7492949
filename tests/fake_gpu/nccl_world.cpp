// SPDX-License-Identifier: MIT
// tests/fake_gpu/nccl_world.cpp - the last rank to come does the work of all. Stricter than the real library, which
// would hang or return garbage where calls differ: here it is an error on every rank.
#include "tests/fake_gpu/nccl_world.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "core/dtype.h"

namespace fake_gpu {
namespace {

using brigade::bf16;
using brigade::f16;

// "1:3" in the environment: rank 1 at its call 3, counted from 0.
std::optional<std::pair<int, std::uint64_t>> mishap(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  char* end = nullptr;
  const long rank = std::strtol(text, &end, 10);
  if (*end != ':') return std::nullopt;
  return std::pair(static_cast<int>(rank), std::strtoull(end + 1, nullptr, 10));
}

// The C++ type behind an NCCL type.
template <class Use>
void with_type(ncclDataType_t type, const Use& use) {
  switch (type) {
    case ncclInt8:
      return use(std::int8_t{});
    case ncclUint8:
      return use(std::uint8_t{});
    case ncclInt32:
      return use(std::int32_t{});
    case ncclUint32:
      return use(std::uint32_t{});
    case ncclInt64:
      return use(std::int64_t{});
    case ncclUint64:
      return use(std::uint64_t{});
    case ncclFloat16:
      return use(f16{});
    case ncclFloat32:
      return use(float{});
    case ncclFloat64:
      return use(double{});
    case ncclBfloat16:
      return use(bf16{});
    default:
      std::abort();  // Refused at the call.
  }
}

// Element by element in rank order; 16-bit floats are widened. A mean multiplies before it adds, as the real one.
template <class T>
T reduced(const std::vector<NcclCall>& calls, std::size_t index) {
  using Wide = std::conditional_t<std::is_same_v<T, f16> || std::is_same_v<T, bf16>, float, T>;
  const auto value = [&](const NcclCall& call) {
    const auto x = static_cast<Wide>(static_cast<const T*>(call.in)[index]);
    return call.op == ncclAvg ? static_cast<Wide>(x * (Wide{1} / static_cast<Wide>(calls.size()))) : x;
  };
  Wide sum = value(calls.front());
  for (std::size_t rank = 1; rank < calls.size(); ++rank) {
    const Wide x = value(calls[rank]);
    switch (calls.front().op) {
      case ncclProd:
        sum = static_cast<Wide>(sum * x);
        break;
      case ncclMax:
        sum = std::max(sum, x);
        break;
      case ncclMin:
        sum = std::min(sum, x);
        break;
      default:
        if constexpr (std::is_integral_v<Wide>)  // Wraps around.
          sum = static_cast<Wide>(static_cast<std::make_unsigned_t<Wide>>(sum) +
                                  static_cast<std::make_unsigned_t<Wide>>(x));
        else
          sum += x;
    }
  }
  return static_cast<T>(sum);
}

template <class T>
void reduce(const std::vector<NcclCall>& calls) {
  const NcclCall& any = calls.front();
  const bool scatters = any.what == NcclCall::What::reduce_scatter;
  const std::size_t all = any.count * (scatters ? calls.size() : 1);
  std::vector<T> result(all);
  for (std::size_t i = 0; i < all; ++i) result[i] = reduced<T>(calls, i);
  for (std::size_t rank = 0; rank < calls.size(); ++rank) {
    if (any.what == NcclCall::What::reduce && static_cast<int>(rank) != any.root) continue;
    const std::size_t from = scatters ? rank * any.count : 0;
    if (any.count > 0) std::memcpy(calls[rank].out, result.data() + from, any.count * sizeof(T));
  }
}

void copy(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, bytes);
}

}  // namespace

std::size_t nccl_size_of(ncclDataType_t type) {
  std::size_t size = 0;
  with_type(type, [&](auto tag) { size = sizeof tag; });
  return size;
}

std::string NcclCall::text() const {
  constexpr const char* kNames[] = {"AllReduce", "Reduce", "Broadcast", "AllGather", "ReduceScatter"};
  return std::string(kNames[static_cast<std::size_t>(what)]) + " of " + std::to_string(count) + " x type " +
         std::to_string(type) + ", op " + std::to_string(op) + ", root " + std::to_string(root);
}

NcclWorld::NcclWorld(int size)
    : size_(size),
      ranks_(static_cast<std::size_t>(size)),
      hangs_(mishap("FAKE_NCCL_HANG")),
      breaks_(mishap("FAKE_NCCL_ASYNC_ERROR")) {}

void NcclWorld::join(int rank, int device, bool may_share) {
  std::lock_guard lock(mutex_);
  at(rank).joined = true;
  at(rank).device = device;
  for (int other = 0; other < size_; ++other) {
    if (other == rank || !at(other).joined || at(other).device != device || may_share) continue;
    for (Rank& r : ranks_) {
      r.error = ncclInvalidUsage;
      r.text = "Duplicate GPU detected : rank " + std::to_string(rank) + " and rank " +
               std::to_string(other) + " both on CUDA device " + std::to_string(device);
    }
  }
  changed_.notify_all();
}

void NcclWorld::leave(int rank) {
  std::lock_guard lock(mutex_);
  at(rank).leaving = true;
}

void NcclWorld::abort(int rank) {
  std::lock_guard lock(mutex_);
  at(rank).aborted = true;
  changed_.notify_all();
}

ncclResult_t NcclWorld::state(int rank) {
  std::lock_guard lock(mutex_);
  const Rank& mine = at(rank);
  if (mine.error != ncclSuccess) return mine.error;
  for (const Rank& other : ranks_)
    if (!other.joined || (mine.leaving && !other.leaving)) return ncclInProgress;
  return ncclSuccess;
}

std::string NcclWorld::last_error(int rank) {
  std::lock_guard lock(mutex_);
  return at(rank).text;
}

bool NcclWorld::run(int rank, const NcclCall& call) {
  std::unique_lock lock(mutex_);
  Rank& mine = at(rank);
  const std::uint64_t number = mine.calls++;
  const auto here = std::pair(rank, number);
  if (breaks_ == here) {
    mine.error = ncclRemoteError;
    mine.text = "a link broke, as FAKE_NCCL_ASYNC_ERROR wants it";
  }
  if (hangs_ == here || breaks_ == here) {
    changed_.wait(lock, [&] { return mine.aborted; });
    return false;
  }

  Meeting& meeting = meetings_[number];
  meeting.calls.resize(static_cast<std::size_t>(size_));
  meeting.calls[static_cast<std::size_t>(rank)] = call;
  // What a rank that has aborted gave may be gone: its peers wait, as for ever.
  const bool all_alive = std::none_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.aborted; });
  if (++meeting.count == size_ && all_alive) {
    finish(meeting);
    meeting.over = true;
    changed_.notify_all();
  }
  changed_.wait(lock, [&] { return meeting.over || mine.aborted; });
  const bool over = meeting.over;
  if (over && --meeting.count == 0) meetings_.erase(number);
  return over;
}

void NcclWorld::finish(Meeting& meeting) {
  const std::vector<NcclCall>& calls = meeting.calls;
  const NcclCall& first = calls.front();
  for (int rank = 1; rank < size_; ++rank) {
    const NcclCall& other = calls[static_cast<std::size_t>(rank)];
    if (other.matches(first)) continue;
    for (Rank& r : ranks_) {
      r.error = ncclInvalidUsage;
      r.text = "rank 0 calls " + first.text() + ", rank " + std::to_string(rank) + " " + other.text();
    }
    return;
  }
  const std::size_t bytes = first.count * nccl_size_of(first.type);
  switch (first.what) {
    case NcclCall::What::broadcast:
      for (const NcclCall& call : calls)
        copy(call.out, calls[static_cast<std::size_t>(first.root)].in, bytes);
      return;
    case NcclCall::What::all_gather:
      for (const NcclCall& call : calls)
        for (std::size_t rank = 0; rank < calls.size(); ++rank)
          copy(static_cast<std::byte*>(call.out) + rank * bytes, calls[rank].in, bytes);
      return;
    default:
      with_type(first.type, [&](auto tag) { reduce<decltype(tag)>(calls); });
  }
}

bool NcclWorld::exchange(int rank, const std::vector<NcclMessage>& sends,
                         const std::vector<NcclMessage>& receives) {
  std::unique_lock lock(mutex_);
  Rank& mine = at(rank);
  std::deque<Letter> sent;  // Does not move what is in it.
  for (const NcclMessage& message : sends) {
    sent.push_back({message});
    letters_[{rank, message.peer}].push_back(&sent.back());
  }
  changed_.notify_all();
  for (const NcclMessage& wanted : receives) {
    std::deque<Letter*>& box = letters_[{wanted.peer, rank}];
    changed_.wait(lock, [&] { return !box.empty() || mine.aborted; });
    if (mine.aborted) break;
    Letter& letter = *box.front();
    box.pop_front();
    const NcclMessage& message = letter.message;
    if (message.count != wanted.count || message.type != wanted.type) {
      mine.error = ncclInvalidUsage;
      mine.text = "a message of " + std::to_string(message.count) + " x type " +
                  std::to_string(message.type) + ", to be received as " + std::to_string(wanted.count) +
                  " x type " + std::to_string(wanted.type);
    } else {
      copy(wanted.data, message.data, message.count * nccl_size_of(message.type));
    }
    letter.taken = true;
    changed_.notify_all();
  }
  changed_.wait(lock, [&] {
    return mine.aborted || std::all_of(sent.begin(), sent.end(), [](const Letter& l) { return l.taken; });
  });
  // Nobody may read a letter of a rank that is gone.
  for (auto& [pair, box] : letters_)
    if (pair.first == rank)
      std::erase_if(box, [&](Letter* l) {
        return std::any_of(sent.begin(), sent.end(), [&](Letter& own) { return &own == l; });
      });
  return !mine.aborted;
}

}  // namespace fake_gpu
