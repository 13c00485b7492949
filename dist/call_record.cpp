// SPDX-License-Identifier: MIT
// dist/call_record.cpp - the comparison of calls between ranks.
#include "dist/call_record.h"

#include <algorithm>
#include <cstring>

namespace brigade::dist {

std::string CallRecord::text() const {
  std::string out = operation;
  if (out.find("reduce") != std::string::npos) out += str("(", op, ")");
  if (count >= 0) out += str(" ", dtype, " x ", count);
  if (place == DeviceType::cuda) out += " on cuda";
  if (root >= 0) out += str(", root ", root);
  return out;
}

std::string describe_mismatch(const std::vector<CallRecord>& calls) {
  if (std::all_of(calls.begin(), calls.end(), [&](const CallRecord& c) { return c == calls.front(); }))
    return "";
  std::string out;
  std::vector<bool> named(calls.size(), false);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (named[i]) continue;
    std::string ranks;
    int count = 0;
    for (std::size_t j = i; j < calls.size(); ++j) {
      if (!(calls[j] == calls[i])) continue;
      named[j] = true;
      ranks += str(count++ > 0 ? ", " : "", j);
    }
    out += str(out.empty() ? "" : ", ", count > 1 ? "ranks " : "rank ", ranks,
               count > 1 ? " call " : " calls ", calls[i].text());
    if (calls[i].sequence != calls.front().sequence) out += str(" as sequence ", calls[i].sequence);
  }
  return out;
}

// Every rank gets every rank's record and compares them alike: all of them throw or none does.
void compare_calls(Transport& transport, const CallRecord& mine) {
  const auto bytes = static_cast<std::int64_t>(sizeof(CallRecord));
  const Tensor sent = Tensor::empty({bytes}, DType::u8);
  Tensor received = Tensor::empty({bytes * transport.size()}, DType::u8);
  std::memcpy(sent.raw(), &mine, sizeof mine);
  transport.all_gather_control(sent, received);
  std::vector<CallRecord> calls(static_cast<std::size_t>(transport.size()));
  std::memcpy(calls.data(), received.raw(), static_cast<std::size_t>(received.bytes()));
  const std::string mismatch = describe_mismatch(calls);
  if (!mismatch.empty()) throw AgreedError(str("the ranks' calls differ: ", mismatch));
}

}  // namespace brigade::dist
