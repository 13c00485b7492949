// SPDX-License-Identifier: MIT
// dist/transport.cpp - names and texts of what dist/transport.h declares.
#include "dist/transport.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace brigade::dist {
namespace {

thread_local Clock::time_point wait_limit = Clock::time_point::max();

}  // namespace

WaitLimit::WaitLimit(Clock::time_point deadline) : before_(std::exchange(wait_limit, deadline)) {}
WaitLimit::~WaitLimit() { wait_limit = before_; }
Clock::time_point WaitLimit::deadline() { return wait_limit; }

std::string_view name(Reduce op) {
  switch (op) {
    case Reduce::sum:
      return "sum";
    case Reduce::mean:
      return "mean";
    case Reduce::min:
      return "min";
    case Reduce::max:
      return "max";
    case Reduce::prod:
      return "prod";
  }
  fail("name: not a reduce operation");
}

std::string Progress::text() const {
  std::string out = phase;
  if (step >= 0) out += str(" of step ", step);
  if (pending > 0)
    out += str(", ", pending, " of ", gradients, " gradients pending, first \"", first_pending, "\"");
  return out;
}

std::string describe_arrivals(const std::vector<bool>& arrived, const std::vector<Progress>& progress,
                              const std::vector<bool>& elsewhere) {
  struct List {
    std::string ranks;
    int count = 0;
    std::string text() const { return str(count == 1 ? "rank " : count == 0 ? "none" : "ranks ", ranks); }
  };
  List there, missing, unknown;
  for (std::size_t rank = 0; rank < arrived.size(); ++rank) {
    List& list = !elsewhere.empty() && elsewhere[rank] ? unknown : arrived[rank] ? there : missing;
    list.ranks += str(list.count++ > 0 ? ", " : "", rank);
    const std::string doing = &list == &missing ? progress[rank].text() : "";
    if (!doing.empty()) list.ranks += str(" (", doing, ")");
  }
  std::string out = str("arrived: ", there.text(), "; missing: ", missing.text());
  if (missing.count == 0) {  // Whoever it is stopped inside the call.
    std::string heard;
    for (std::size_t rank = 0; rank < progress.size(); ++rank)
      if (const std::string doing = progress[rank].text(); arrived[rank] && !doing.empty())
        heard += str(heard.empty() ? "" : ", ", "rank ", rank, " (", doing, ")");
    if (!heard.empty()) out += str("; last heard of: ", heard);
  }
  if (unknown.count > 0) out += str("; not known, on other hosts: ", unknown.text());
  return out;
}

std::string describe_lost(int rank, std::int64_t process, const Progress& progress) {
  const std::string doing = progress.text();
  return str("rank ", rank, " (process ", process, ") is gone; ",
             doing.empty() ? "it had not joined the others" : str("it was last in ", doing));
}

Storage Transport::allocate_shared(std::int64_t bytes) {
  Storage storage(Device{}, bytes);
  runtime(Device{}).fill_zero(storage.data(), bytes);
  return storage;
}

std::vector<std::string> gather_texts(Transport& transport, const std::string& text) {
  // Sizes first, then the bytes, padded to the longest: collectives move equal amounts.
  const auto length = static_cast<std::int64_t>(text.size());
  Tensor lengths = Tensor::empty({transport.size()}, DType::i64);
  transport.all_gather_control(Tensor::from(std::vector<std::int64_t>{length}, {1}), lengths);
  const std::vector<std::int64_t> sizes = lengths.to_vector<std::int64_t>();
  const std::int64_t longest = *std::max_element(sizes.begin(), sizes.end());

  Tensor mine = Tensor::zeros({longest}, DType::u8),
         all = Tensor::empty({transport.size() * longest}, DType::u8);
  if (length > 0) std::memcpy(mine.raw(), text.data(), text.size());
  transport.all_gather_control(mine, all);
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < sizes.size(); ++r)
    texts.emplace_back(reinterpret_cast<const char*>(all.raw()) + static_cast<std::int64_t>(r) * longest,
                       static_cast<std::size_t>(sizes[r]));
  return texts;
}

}  // namespace brigade::dist
