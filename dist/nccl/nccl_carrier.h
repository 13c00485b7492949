// SPDX-License-Identifier: MIT
// dist/nccl/nccl_carrier.h - a device's tensors between ranks that have a GPU each, by NVIDIA's library (user guide:
// docs.nvidia.com/deeplearning/nccl). Read before: dist/device_transport.h. Read next: dist/device_choice.h.
#pragma once

#include <chrono>

#include "dist/device_transport.h"

namespace brigade::dist {

/// Collective over `host`, which carries the communicator's id and must outlive the carrier. Blocks until all ranks
/// have joined, at most for `timeout`. CommError says who did not come as far as the host's transport knows, or what
/// the library says. Error if the library that is loaded is older than the header.
///
/// What differs from Transport: 16-bit floats may be rounded at every rank that adds to them, in the library's order.
/// A mean multiplies by 1/size before it adds up, which for powers of two is exact. Integers have no mean, and min and
/// max may drop a NaN. All ranks still get the same bits.
std::unique_ptr<Carrier> make_nccl_carrier(Transport& host, Device device, std::chrono::milliseconds timeout);

}  // namespace brigade::dist
