// SPDX-License-Identifier: MIT
// core/checksum.cpp - see the header.
#include "core/checksum.h"

#include <xxhash.h>

namespace brigade {

std::uint64_t checksum(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace brigade
