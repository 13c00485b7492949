// SPDX-License-Identifier: MIT
// dist/buffer_sync.h - what becomes of batch norm's running statistics, which no gradient keeps equal between ranks.
//
// Why it is enough to synchronise them before evaluation and before saving, and not before each forward: in training a
// batch norm never reads its running statistics, it only writes them. They are moving averages,
//   running = (1 - m) running + m batch,
// so linear in what each rank saw: the mean over ranks of the averages after many steps is the average that a mean at
// every step would have given, and rank 0's is rank 0's whenever it is sent. So nothing is lost by being late, and no
// forward changes a buffer that an earlier forward still needs: two forwards before one backward work.
//
// Read before: dist/process_group.h, nn/batch_norm.h.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "dist/process_group.h"
#include "nn/module.h"

namespace brigade::dist {

/// broadcast  All ranks get rank 0's: what PyTorch's DDP does, with statistics of 1/p of the data.
/// average    The mean over ranks; integers are rank 0's. Statistics of all data, except that a variance is the mean of
///            those within ranks: how far the means of ranks lie apart is not in it.
/// sync_bn    The layers combine their statistics at every step (nn::set_statistics_combiner), which is the program's
///            to set; buffers are equal then. Rank 0's are sent all the same: equal is what they shall be, whatever was
///            loaded into them.
/// local      Each rank keeps its own.
enum class BufferPolicy : std::uint8_t { broadcast, average, sync_bn, local };

struct BufferPolicyEntry {
  std::string_view name;
  std::string_view description;  ///< One line for --help.
  BufferPolicy policy;
};
std::span<const BufferPolicyEntry> buffer_policies();
/// Throws Error `unknown buffer policy "mean"; choose from …`.
BufferPolicy buffer_policy(std::string_view name);

/// Makes the buffers of all ranks what `policy` says. `buffers` must agree between ranks in order, shapes and dtypes.
/// Collective, blocks; one collective for each dtype, however many buffers there are. Throws CommError.
void sync_buffers(const std::vector<nn::NamedBuffer>& buffers, BufferPolicy policy, ProcessGroup& group);

}  // namespace brigade::dist
