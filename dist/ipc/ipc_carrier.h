// SPDX-License-Identifier: MIT
// dist/ipc/ipc_carrier.h - a device's tensors through memory of the device itself, which ranks lend each other: for
// ranks of one host that share a GPU, or whose GPUs reach each other, where NCCL does not serve. Read before:
// dist/device_transport.h, core/cuda/lent_memory.h. Read next: dist/staged_moves.h.
#pragma once

#include "dist/device_transport.h"

namespace brigade::dist {

/// Each rank puts a piece of its tensor into memory that the others can read, and takes the sum of all pieces, in rank
/// order, rounded once: the bits of the staged carrier, and of CPU tensors (but for the payload of a NaN). What comes
/// behind what on the device is said by events; the host only tells the others, over `host`, that an event is recorded,
/// and waits for no device. Messages between two ranks go through pinned host memory, as no gradient does.
///
/// Collective. Before it returns, every rank has read what every other one wrote; where any of them could not, all get
/// nullptr, and `why_not` names the first of them and its reason. `host` must outlive the carrier.
///
/// A wait of the device cannot be ended: if a peer's process is stopped in the midst of one, this device waits.
std::unique_ptr<Carrier> make_ipc_carrier(Transport& host, Device device, std::string& why_not,
                                          std::int64_t half_bytes);

}  // namespace brigade::dist
