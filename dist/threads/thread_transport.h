// SPDX-License-Identifier: MIT
// dist/threads/thread_transport.h - the transport between ranks that are threads of one process.
// Read before: dist/transport.h. Read next: dist/threads/hub.h, the meeting place.
#pragma once

#include <memory>

#include "dist/transport.h"

namespace brigade::dist {

class Hub;

/// A meeting place for `size` ranks; hand it to make_thread_transport() on each.
std::shared_ptr<Hub> make_hub(int size);

/// Rank `rank` at `hub`. Collectives work in place on the ranks' own tensors, without staging copies: each
/// rank reduces its slice of all tensors, in rank order, and writes the result to all of them.
std::unique_ptr<Transport> make_thread_transport(std::shared_ptr<Hub> hub, int rank);

}  // namespace brigade::dist
