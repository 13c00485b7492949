// SPDX-License-Identifier: MIT
// dist/shm/two_level_transport.h - several hosts with several ranks each: a sum passes through shared memory inside a
// host, and between hosts it travels once. Read before: dist/shm/shm_transport.h.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "dist/transport.h"

namespace brigade::dist {

struct TwoLevels {
  std::unique_ptr<Transport> here;         ///< Among the ranks of this host.
  std::unique_ptr<Transport> across = {};  ///< Among rank 0 of every `here`; nullptr on the others.
  std::unique_ptr<Transport> all;          ///< Among all ranks: carries what is not a reduction.
  std::string name = "mpi + shared memory";
  std::function<std::string()> arrivals = {};  ///< Transport::arrivals(); empty: that of `all`.
};

/// all_reduce: the host's ranks reduce to their first, the first ones of all hosts all-reduce, each host's first rank
/// broadcasts. A host sends as many bytes as one rank would. Sums are made host by host: with more than two ranks they
/// round otherwise than in rank order, but alike on all ranks.
std::unique_ptr<Transport> make_two_level_transport(TwoLevels levels);

}  // namespace brigade::dist
