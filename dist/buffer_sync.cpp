// SPDX-License-Identifier: MIT
// dist/buffer_sync.cpp - many small buffers in few collectives.
#include "dist/buffer_sync.h"

#include <array>

#include "core/choices.h"
#include "kernels/ops.h"

namespace brigade::dist {
namespace {

constexpr std::array kPolicies{
    BufferPolicyEntry{"broadcast", "rank 0's running statistics for all", BufferPolicy::broadcast},
    BufferPolicyEntry{"average", "the mean of all ranks' running statistics", BufferPolicy::average},
    BufferPolicyEntry{"sync_bn", "batch norm over the batches of all ranks, at every step",
                      BufferPolicy::sync_bn},
    BufferPolicyEntry{"local", "each rank keeps its own", BufferPolicy::local},
};

// All buffers of one dtype in a row, and the collective that is under way on it.
struct Pack {
  std::vector<Tensor> buffers;
  Tensor flat;
  Work work;
};

Pack pack(const std::vector<nn::NamedBuffer>& all, DType dtype) {
  Pack out;
  std::vector<Tensor> rows;
  for (const nn::NamedBuffer& buffer : all) {
    if (buffer.tensor.dtype() != dtype) continue;
    out.buffers.push_back(buffer.tensor);
    rows.push_back(ops::reshape(buffer.tensor, {buffer.tensor.numel()}));
  }
  if (!rows.empty()) out.flat = ops::concat(rows, 0);
  return out;
}

void unpack(Pack& from) {
  std::int64_t begin = 0;
  for (Tensor& buffer : from.buffers) {
    const Tensor row = from.flat.slice(0, begin, begin + buffer.numel());
    ops::copy_(buffer, ops::reshape(row, buffer.shape()));
    begin += buffer.numel();
  }
}

}  // namespace

std::span<const BufferPolicyEntry> buffer_policies() { return kPolicies; }

BufferPolicy buffer_policy(std::string_view name) { return choose("buffer policy", name, kPolicies).policy; }

void sync_buffers(const std::vector<nn::NamedBuffer>& buffers, BufferPolicy policy, ProcessGroup& group) {
  if (policy == BufferPolicy::local || group.size() == 1) return;
  std::vector<Pack> packs;
  for (const DType dtype : kAllDTypes) {
    Pack next = pack(buffers, dtype);
    if (next.buffers.empty()) continue;
    const std::string label = str("buffers, ", dtype);
    next.work = policy == BufferPolicy::average && is_floating(dtype)
                    ? group.all_reduce(next.flat, Reduce::mean, label)
                    : group.broadcast(next.flat, 0, label);
    packs.push_back(std::move(next));
  }
  for (Pack& done : packs) {
    done.work.wait();
    unpack(done);
  }
}

}  // namespace brigade::dist
