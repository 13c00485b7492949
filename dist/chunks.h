// SPDX-License-Identifier: MIT
// dist/chunks.h - cuts long messages for libraries that count in int. Used by dist/mpi; tested without it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/check.h"

namespace brigade::dist {

/// Calls `body(offset, n)` on consecutive pieces of [0, count), each 1 … max_chunk
/// long. Offsets are 64 bits wide.
template <class Body>
void for_each_chunk(std::int64_t count, std::int64_t max_chunk, const Body& body) {
  BRIGADE_CHECK(count >= 0 && max_chunk > 0, "for_each_chunk: needs count >= 0 and max_chunk > 0; got ",
                count, ", ", max_chunk);
  for (std::int64_t offset = 0; offset < count; offset += max_chunk)
    body(offset, std::min(max_chunk, count - offset));
}

}  // namespace brigade::dist
