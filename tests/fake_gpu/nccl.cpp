// SPDX-License-Identifier: MIT
// tests/fake_gpu/nccl.cpp - libnccl.so.2 on the emulated GPU: what dist/nccl calls, for ranks that are threads or
// processes of one machine. Strict where the real library leaves mistakes to hang: order, counts, devices, a call on a
// communicator that is not through with the last one. FAKE_NCCL_VERSION, FAKE_NCCL_HANG and FAKE_NCCL_ASYNC_ERROR
// (nccl_world.cpp) set it up.
#include <nccl.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "tests/fake_gpu/fake_gpu.h"
#include "tests/fake_gpu/nccl_remote.h"
#include "tests/fake_gpu/nccl_world.h"

using fake_gpu::NcclCall;
using fake_gpu::NcclMessage;
using fake_gpu::NcclRanks;
using fake_gpu::NcclWorld;

struct ncclComm {
  std::shared_ptr<NcclRanks> world;
  int rank = 0, device = 0;
  bool blocking = true;
  std::atomic<bool> busy{false};  // A non-blocking call has not been asked about yet.
  std::string text;               // Of ncclGetLastError.
};

namespace {

int version() {
  const char* const told = std::getenv("FAKE_NCCL_VERSION");
  return told != nullptr ? std::atoi(told) : NCCL_VERSION_CODE;
}

struct Registry {
  std::mutex mutex;
  std::map<std::uint64_t, std::weak_ptr<NcclWorld>> worlds;
  std::uint64_t next = 1;
};
Registry& registry() {
  static Registry& registry = *new Registry;  // Outlives threads that still leave.
  return registry;
}

// Of the id `number` of this process; made by the first rank that asks.
std::shared_ptr<NcclWorld> world_of(std::uint64_t number, int size) {
  std::lock_guard lock(registry().mutex);
  std::weak_ptr<NcclWorld>& slot = registry().worlds[number];
  std::shared_ptr<NcclWorld> world = slot.lock();
  if (!world) slot = world = std::make_shared<NcclWorld>(size);
  return world;
}

// The id: process, number.
struct Id {
  std::int64_t process;
  std::uint64_t number;
};

thread_local std::string last_error;

ncclResult_t refuse(ncclResult_t code, std::string text) {
  last_error = std::move(text);
  return code;
}

// An open group of this thread: point to point only.
struct Group {
  int depth = 0;
  ncclComm* comm = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<NcclMessage> sends, receives;
};
thread_local Group group;

// Local mistakes of any call that goes to a stream.
ncclResult_t check(ncclComm* comm, cudaStream_t stream, ncclDataType_t type) {
  if (comm == nullptr) return refuse(ncclInvalidArgument, "the communicator is null");
  if (comm->busy)
    return refuse(ncclInvalidUsage, "the communicator is in progress: ask ncclCommGetAsyncError first");
  if (fake_gpu::current_device() != comm->device || fake_gpu::device_of(stream) != comm->device)
    return refuse(ncclInvalidUsage, "the calling thread's device or the stream is not the communicator's");
  if (type >= ncclFloat8e4m3) return refuse(ncclInvalidArgument, "a type that is not emulated");
  return ncclSuccess;
}

ncclResult_t started(ncclComm* comm) {
  if (comm->blocking) return ncclSuccess;
  comm->busy = true;
  return ncclInProgress;
}

ncclResult_t collective(ncclComm* comm, cudaStream_t stream, const NcclCall& call) {
  if (const ncclResult_t wrong = check(comm, stream, call.type); wrong != ncclSuccess) return wrong;
  if (group.depth > 0) return refuse(ncclInvalidUsage, "collectives in groups are not emulated");
  if (call.op >= ncclNumOps || (call.op == ncclAvg && call.type < ncclFloat16))
    return refuse(ncclInvalidArgument, "a reduction that is not emulated");
  for (const void* memory : {call.in, static_cast<const void*>(call.out)})
    if (call.count > 0 && fake_gpu::device_of_memory(memory) != comm->device)
      return refuse(ncclInvalidArgument, "a buffer is not in the memory of the communicator's device");
  fake_gpu::enqueue(stream, [world = comm->world, rank = comm->rank, call] { world->run(rank, call); });
  return started(comm);
}

ncclResult_t run_group() {
  Group all = std::move(group);
  group = Group();
  if (all.comm == nullptr) return ncclSuccess;
  fake_gpu::enqueue(all.stream, [world = all.comm->world, rank = all.comm->rank, sends = all.sends,
                                 receives = all.receives] { world->exchange(rank, sends, receives); });
  return started(all.comm);
}

ncclResult_t message(ncclComm* comm, cudaStream_t stream, const NcclMessage& m, bool sends) {
  if (const ncclResult_t wrong = check(comm, stream, m.type); wrong != ncclSuccess) return wrong;
  if (group.comm != nullptr && (group.comm != comm || group.stream != stream))
    return refuse(ncclInvalidUsage, "groups over several communicators or streams are not emulated");
  group.comm = comm;
  group.stream = stream;
  (sends ? group.sends : group.receives).push_back(m);
  return group.depth > 0 ? ncclSuccess : run_group();
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* out) {
  *out = version();
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  constexpr const char* kTexts[] = {"no error",
                                    "unhandled cuda error",
                                    "unhandled system error",
                                    "internal error",
                                    "invalid argument",
                                    "invalid usage",
                                    "remote process exited or there was a network error",
                                    "NCCL operation in progress"};
  return result < ncclNumResults ? kTexts[result] : "unknown result code";
}

const char* ncclGetLastError(ncclComm_t comm) {
  if (comm == nullptr || !last_error.empty()) return last_error.c_str();
  comm->text = comm->world->last_error(comm->rank);
  return comm->text.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* out) {
  fake_gpu::serve_nccl(world_of);  // Ranks of other processes find the world here.
  std::lock_guard lock(registry().mutex);
  const Id id{getpid(), registry().next++};
  std::memset(out, 0, sizeof *out);
  std::memcpy(out->internal, &id, sizeof id);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* out, int size, ncclUniqueId unique, int rank,
                                    ncclConfig_t* config) {
  Id id{};
  std::memcpy(&id, unique.internal, sizeof id);
  *out = nullptr;
  if (rank < 0 || rank >= size) return refuse(ncclInvalidArgument, "the rank is not one of the size");
  std::shared_ptr<NcclRanks> world;
  if (id.process == getpid())
    world = world_of(id.number, size);
  else
    world = fake_gpu::connect_nccl(id.process, id.number, size);
  if (!world) return refuse(ncclSystemError, "the process that made the id does not answer");
  if (world->size() != size) return refuse(ncclInvalidArgument, "the ranks give different sizes");
  last_error.clear();
  auto comm = std::make_unique<ncclComm>();
  comm->world = world;
  comm->rank = rank;
  comm->device = fake_gpu::current_device();
  comm->blocking = config == nullptr || config->blocking != 0;
  if (comm->blocking) return refuse(ncclInvalidUsage, "blocking communicators are not emulated");
  const char* const shares = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  world->join(rank, comm->device, version() >= 23000 && shares != nullptr && std::strcmp(shares, "1") == 0);
  *out = comm.release();
  return started(*out);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  // One look that finds it busy, so that callers must look again.
  *state = comm->busy.exchange(false) ? ncclInProgress : comm->world->state(comm->rank);
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  comm->world->leave(comm->rank);
  return started(comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const bool through = comm->world->state(comm->rank) == ncclSuccess;
  comm->world->abort(comm->rank);
  delete comm;
  return through ? ncclSuccess : refuse(ncclInvalidUsage, "destroyed before it was finalized on all ranks");
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->world->abort(comm->rank);
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective(comm, stream, {NcclCall::What::all_reduce, in, out, count, type, op, -1});
}

ncclResult_t ncclReduce(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  return collective(comm, stream, {NcclCall::What::reduce, in, out, count, type, op, root});
}

ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective(comm, stream, {NcclCall::What::broadcast, in, out, count, type, ncclSum, root});
}

ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return collective(comm, stream, {NcclCall::What::all_gather, in, out, count, type, ncclSum, -1});
}

ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return collective(comm, stream, {NcclCall::What::reduce_scatter, in, out, count, type, op, -1});
}

ncclResult_t ncclSend(const void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return message(comm, stream, {const_cast<void*>(data), count, type, peer}, true);
}

ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return message(comm, stream, {data, count, type, peer}, false);
}

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group.depth == 0) return refuse(ncclInvalidUsage, "no group is open");
  return --group.depth > 0 ? ncclSuccess : run_group();
}

}  // extern "C"
