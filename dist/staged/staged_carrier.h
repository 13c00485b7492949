// SPDX-License-Identifier: MIT
// dist/staged/staged_carrier.h - a device's tensors over the host's transport, by way of pinned memory: slower than
// links between devices, but it works wherever ranks can talk at all. Read before: dist/device_transport.h.
#pragma once

#include "dist/device_transport.h"

namespace brigade::dist {

/// Sums, minima and products are the host's: the same bits as of CPU tensors (in pieces, where an algorithm cuts by
/// size). Elementwise calls go in chunks: while one travels, the next comes down from the device and the last goes up.
/// The calling thread waits for each chunk, so calls belong on the communication stream's own thread.
/// `host` must outlive the carrier.
std::unique_ptr<Carrier> make_staged_carrier(Transport& host, Device device,
                                             std::int64_t chunk_bytes = std::int64_t{4} << 20);

}  // namespace brigade::dist
