// SPDX-License-Identifier: MIT
// dist/call_record.h - what ranks compare before a collective runs. Read before: dist/transport.h.
// Used by dist/process_group.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dist/transport.h"

namespace brigade::dist {

/// What one rank calls, as compared between ranks and as named in errors. Travels as plain bytes.
struct CallRecord {
  std::int64_t sequence = 0;  ///< Counts the group's collectives from 0.
  char operation[24] = {};    ///< "all_reduce"
  DType dtype = DType::f32;
  Reduce op = Reduce::sum;
  DeviceType place = DeviceType::cpu;  ///< Of its tensors.
  std::int32_t root = -1;              ///< -1: none.
  std::int64_t count = -1;             ///< Elements of the tensor whose size all ranks share; -1: no tensor.
  std::string text() const;  ///< "all_reduce(sum) f32 x 1023", "broadcast f32 x 7, root 1", "barrier"
  friend bool operator==(const CallRecord&, const CallRecord&) = default;
};

/// "rank 0 calls barrier, ranks 1, 2 call broadcast f32 x 7, root 1" if the calls differ; else empty.
std::string describe_mismatch(const std::vector<CallRecord>& calls);

/// Gathers all ranks' records and compares them; the same AgreedError on all ranks if they differ. Collective.
void compare_calls(Transport& transport, const CallRecord& mine);

}  // namespace brigade::dist
