// SPDX-License-Identifier: MIT
// dist/nccl/nccl_carrier.cpp - one communicator, one stream: calls are enqueued in the order in which they come, which
// is the same on all ranks. The communicator is a non-blocking one, so that nothing in here can hang: each call returns
// at once, and what it started is looked at until it is done or somebody gives up.
#include "dist/nccl/nccl_carrier.h"

#include <nccl.h>

#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

#include "core/cuda/devices.h"
#include "core/cuda/stream_cuda.h"
#include "dist/nccl/nccl_calls.h"

namespace brigade::dist {
namespace {

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return ncclFloat64;
    case DType::f32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f16:
      return ncclFloat16;
    case DType::i64:
      return ncclInt64;
    case DType::i32:
      return ncclInt32;
    case DType::i8:
      return ncclInt8;
    case DType::u8:
    case DType::boolean:
      return ncclUint8;
  }
  fail("nccl: not a dtype");
}

// bool: bytes of 0 and 1, of which the largest is "or" and the smallest "and".
ncclRedOp_t op_of(Reduce op, DType dtype) {
  const bool logical = dtype == DType::boolean;
  switch (op) {
    case Reduce::sum:
      return logical ? ncclMax : ncclSum;
    case Reduce::mean:
      BRIGADE_CHECK(is_floating(dtype), "mean: of integers on a device is not offered by NCCL; got ", dtype,
                    "; reduce a tensor on the CPU");
      return ncclAvg;
    case Reduce::min:
      return ncclMin;
    case Reduce::max:
      return ncclMax;
    case Reduce::prod:
      return logical ? ncclMin : ncclProd;
  }
  fail("nccl: not a reduction");
}

std::size_t count_of(const Tensor& t) { return static_cast<std::size_t>(t.numel()); }

class NcclCarrier final : public Carrier {
 public:
  NcclCarrier(Transport& host, Device device, std::chrono::milliseconds timeout)
      : host_(host), device_(device), timeout_(timeout), version_(nccl_versions().loaded) {
    const ncclUniqueId id = agree_on_id();
    use_cuda_device(device_.index);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    finish("ncclCommInitRankConfig",
           ncclCommInitRankConfig(&communicator_, host_.size(), id, host_.rank(), &config));
  }

  // Without close() peers may be gone: nobody is waited for.
  ~NcclCarrier() override { NcclCarrier::abort(); }

  std::string name() const override { return str("nccl ", nccl_version_text(version_)); }
  std::string why_not_captured() const override { return ""; }

  void broadcast(Tensor& t, int root) override {
    issue("ncclBroadcast", [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclBroadcast(t.raw(), t.raw(), count_of(t), type_of(t.dtype()), root, comm, stream);
    });
  }
  void all_reduce(Tensor& t, Reduce op) override {
    const ncclRedOp_t how = op_of(op, t.dtype());
    issue("ncclAllReduce", [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclAllReduce(t.raw(), t.raw(), count_of(t), type_of(t.dtype()), how, comm, stream);
    });
  }
  void reduce(Tensor& t, Reduce op, int root) override {
    const ncclRedOp_t how = op_of(op, t.dtype());
    issue("ncclReduce", [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclReduce(t.raw(), t.raw(), count_of(t), type_of(t.dtype()), how, root, comm, stream);
    });
  }
  void reduce_scatter(const Tensor& t, Tensor& out, Reduce op) override {
    const ncclRedOp_t how = op_of(op, t.dtype());
    issue("ncclReduceScatter", [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclReduceScatter(t.raw(), out.raw(), count_of(out), type_of(t.dtype()), how, comm, stream);
    });
  }
  void all_gather(const Tensor& t, Tensor& out) override {
    issue("ncclAllGather", [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclAllGather(t.raw(), out.raw(), count_of(t), type_of(t.dtype()), comm, stream);
    });
  }

  void send(const Tensor& t, int to) override {
    issue("ncclSend", [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclSend(t.raw(), count_of(t), type_of(t.dtype()), to, comm, stream);
    });
  }
  void recv(Tensor& t, int from) override {
    issue("ncclRecv", [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclRecv(t.raw(), count_of(t), type_of(t.dtype()), from, comm, stream);
    });
  }
  void send_recv(const Tensor& sent, int to, Tensor& received, int from) override {
    together({{&sent, 0, sent.numel(), to}}, {{&received, 0, received.numel(), from}});
  }
  void gather(const Tensor& t, Tensor& out, int root) override {
    together({{&t, 0, t.numel(), root}}, host_.rank() == root ? blocks(out, t.numel()) : Blocks());
  }
  void scatter(const Tensor& t, Tensor& out, int root) override {
    together(host_.rank() == root ? blocks(t, out.numel()) : Blocks(), {{&out, 0, out.numel(), root}});
  }
  void all_to_all(const Tensor& t, Tensor& out) override {
    const std::int64_t length = t.numel() / host_.size();
    together(blocks(t, length), blocks(out, length));
  }

  std::optional<std::string> failure() const override {
    std::lock_guard lock(mutex_);
    if (communicator_ == nullptr) return std::nullopt;
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(communicator_, &state);
    if (asked != ncclSuccess) return nccl_error_text("ncclCommGetAsyncError", asked, communicator_);
    if (state == ncclSuccess || state == ncclInProgress) return std::nullopt;
    return nccl_error_text("nccl, asynchronously", state, communicator_);
  }

  // Ends kernels that wait for peers. Frees the communicator: nobody may use it afterwards, hence the lock.
  void abort() noexcept override {
    std::lock_guard lock(mutex_);
    if (communicator_ != nullptr) ncclCommAbort(std::exchange(communicator_, nullptr));
  }

  // All ranks flush, and only then free what peers may still read.
  void close() override {
    if (!alive()) return;
    issue("ncclCommFinalize", [](ncclComm_t comm, cudaStream_t) { return ncclCommFinalize(comm); });
    std::lock_guard lock(mutex_);
    if (communicator_ == nullptr) return;
    const ncclComm_t communicator = std::exchange(communicator_, nullptr);
    const ncclResult_t result = ncclCommDestroy(communicator);
    if (result != ncclSuccess) throw CommError(nccl_error_text("ncclCommDestroy", result, nullptr));
  }

 private:
  struct Block {
    const Tensor* tensor;
    std::int64_t begin, count;  // Elements.
    int peer;
    std::byte* data() const { return tensor->raw() + begin * tensor->item_bytes(); }
  };
  using Blocks = std::vector<Block>;
  Blocks blocks(const Tensor& t, std::int64_t length) const {
    Blocks out;
    for (int rank = 0; rank < host_.size(); ++rank) out.push_back({&t, rank * length, length, rank});
    return out;
  }

  // All at once: in a group, so that no order of sends and receives can deadlock. A rank may send to itself.
  void together(const Blocks& sends, const Blocks& receives) {
    issue("ncclGroupEnd, point to point", [&](ncclComm_t comm, cudaStream_t stream) {
      ncclResult_t first = ncclGroupStart();
      const auto keep = [&](ncclResult_t result) {
        if (first == ncclSuccess && result != ncclInProgress) first = result;
      };
      for (const Block& b : sends)
        keep(ncclSend(b.data(), static_cast<std::size_t>(b.count), type_of(b.tensor->dtype()), b.peer, comm,
                      stream));
      for (const Block& b : receives)
        keep(ncclRecv(b.data(), static_cast<std::size_t>(b.count), type_of(b.tensor->dtype()), b.peer, comm,
                      stream));
      const ncclResult_t end = ncclGroupEnd();  // Whatever happened inside: the group must not stay open.
      return first == ncclSuccess ? end : first;
    });
  }

  // Rank 0 makes it. Its failure is everybody's: nobody waits for an id that does not come.
  ncclUniqueId agree_on_id() {
    ncclUniqueId id{};
    std::string error;
    if (host_.rank() == 0) {
      try {
        check_nccl_versions(nccl_versions());
        const ncclResult_t result = ncclGetUniqueId(&id);
        if (result != ncclSuccess) error = nccl_error_text("ncclGetUniqueId", result, nullptr);
      } catch (const Error& e) {
        error = e.what();
      }
    }
    const std::vector<std::string> texts = gather_texts(
        host_, host_.rank() == 0 && error.empty() ? std::string(id.internal, sizeof id.internal) : error);
    if (texts.front().size() != sizeof id.internal) throw CommError("rank 0: " + texts.front());
    std::memcpy(id.internal, texts.front().data(), sizeof id.internal);
    return id;
  }

  bool alive() const {
    std::lock_guard lock(mutex_);
    return communicator_ != nullptr;
  }

  // call(communicator, current stream), and waits until the library has taken it in.
  template <class Call>
  void issue(const char* name, const Call& call) {
    ncclResult_t result = ncclSuccess;
    {
      std::lock_guard lock(mutex_);
      if (communicator_ == nullptr) throw CommError(str(name, ": the communicator was ended"));
      result = call(communicator_, current_cuda_stream(device_));
    }
    finish(name, result);
  }

  void finish(const char* name, ncclResult_t result) {
    const auto deadline = Clock::now() + timeout_;
    std::chrono::microseconds nap{0};
    while (result == ncclInProgress) {
      // Most calls are through at once; joining and leaving take their time.
      if (nap.count() > 0) std::this_thread::sleep_for(nap);
      nap = std::min(std::chrono::microseconds(1000), nap + std::chrono::microseconds(5));
      std::string trouble;
      if (const auto failed = host_.failure()) trouble = *failed;
      if (Clock::now() > deadline)
        trouble = str("not done within ", timeout_.count(), " ms; ", host_.arrivals());
      if (!trouble.empty()) {
        abort();
        throw CommError(str(name, ": ", trouble));
      }
      std::lock_guard lock(mutex_);
      if (communicator_ == nullptr) throw CommError(str(name, ": the communicator was ended"));
      const ncclResult_t asked = ncclCommGetAsyncError(communicator_, &result);
      if (asked != ncclSuccess) result = asked;
    }
    if (result == ncclSuccess) return;
    std::string text;
    {
      std::lock_guard lock(mutex_);
      text = nccl_error_text(name, result, communicator_);
    }
    abort();
    throw CommError(text);
  }

  Transport& host_;
  const Device device_;
  const std::chrono::milliseconds timeout_;
  const int version_;
  mutable std::mutex mutex_;  // Between the calling thread and abort() or failure() from others.
  ncclComm_t communicator_ = nullptr;
};

}  // namespace

std::unique_ptr<Carrier> make_nccl_carrier(Transport& host, Device device,
                                           std::chrono::milliseconds timeout) {
  return std::make_unique<NcclCarrier>(host, device, timeout);
}

}  // namespace brigade::dist
