// SPDX-License-Identifier: MIT
// dist/roll_call.cpp - entries as words, their exchange, and what is made of a difference.
#include "dist/roll_call.h"

#include <algorithm>
#include <bit>

#include "core/checksum.h"
#include "dist/doctor.h"

namespace brigade::dist {
namespace {

constexpr std::size_t kFixedWords = 6;
constexpr std::int64_t kActive = 1, kLossFinite = 2;  // Flags.

std::size_t bit_words(std::size_t parameters) { return (parameters + 63) / 64; }

// Fixed words, then the bits of `used`, then those of `frozen`.
void encode(const RollCallEntry& entry, std::int64_t* words) {
  *words++ = entry.step;
  *words++ = std::bit_cast<std::int64_t>(entry.calls);
  *words++ = (entry.active ? kActive : 0) | (entry.loss_finite ? kLossFinite : 0);
  *words++ = std::bit_cast<std::int64_t>(entry.weight);
  *words++ = std::bit_cast<std::int64_t>(entry.wishes);
  *words++ = std::bit_cast<std::int64_t>(entry.sums);
  for (const std::vector<bool>* bits : {&entry.used, &entry.frozen}) {
    for (std::size_t i = 0; i < bits->size(); ++i)
      if ((*bits)[i]) words[i / 64] |= std::int64_t{1} << (i % 64);
    words += bit_words(bits->size());
  }
}

RollCallEntry decode(const std::int64_t* words, std::size_t parameters) {
  RollCallEntry entry;
  entry.step = *words++;
  entry.calls = std::bit_cast<std::uint64_t>(*words++);
  entry.active = (*words & kActive) != 0;
  entry.loss_finite = (*words++ & kLossFinite) != 0;
  entry.weight = std::bit_cast<double>(*words++);
  entry.wishes = std::bit_cast<std::uint64_t>(*words++);
  entry.sums = std::bit_cast<std::uint64_t>(*words++);
  for (std::vector<bool>* bits : {&entry.used, &entry.frozen}) {
    for (std::size_t i = 0; i < parameters; ++i) bits->push_back((words[i / 64] >> (i % 64) & 1) != 0);
    words += bit_words(parameters);
  }
  return entry;
}

template <class Field>
bool agree(const std::vector<RollCallEntry>& entries, const Field& field) {
  return std::all_of(entries.begin(), entries.end(),
                     [&](const RollCallEntry& entry) { return field(entry) == field(entries.front()); });
}

// All ranks hold the same entries, hence all of them come here and throw, or none does.
void compare(const std::vector<RollCallEntry>& entries, const RollCallTexts& texts,
             const std::vector<std::uint64_t>& sums, Transport& transport) {
  // People count steps from 1, as the trainer does.
  const std::int64_t step = entries[static_cast<std::size_t>(transport.rank())].step + 1;
  if (!agree(entries, [](const RollCallEntry& e) { return e.step; }) ||
      !agree(entries, [](const RollCallEntry& e) { return e.calls; })) {
    std::vector<std::string> mine{str("step ", step)};
    mine.insert(mine.end(), texts.calls.begin(), texts.calls.end());
    throw AgreedError("the ranks are about to call different things: " + difference(transport, mine));
  }
  // Here, where all ranks see it, and not where one of them would first miss it.
  double weights = 0;
  for (const RollCallEntry& entry : entries) weights += entry.weight;
  const bool any_active =
      std::any_of(entries.begin(), entries.end(), [](const RollCallEntry& e) { return e.active; });
  if (any_active && !(weights > 0))
    throw AgreedError("the weights of all ranks are 0: there is nothing to take the mean of");
  const bool compared =
      std::all_of(entries.begin(), entries.end(), [](const RollCallEntry& e) { return e.sums != 0; });
  if (!compared || agree(entries, [](const RollCallEntry& e) { return e.sums; })) return;
  std::vector<std::string> mine;
  for (std::size_t i = 0; i < sums.size(); ++i)
    mine.push_back(str("\"", texts.names[i], "\" checksum ", hex(sums[i])));
  throw AgreedError(
      str("the ranks' parameters differ before step ", step, ": ", difference(transport, mine)));
}

}  // namespace

RollCallTexts describe_calls(std::string headline, const BucketPlan& plan,
                             const optim::FlatParameters& parameters) {
  RollCallTexts texts;
  for (int i = 0; i < parameters.count(); ++i) texts.names.push_back(parameters.at(i).name);
  texts.calls.push_back(std::move(headline));
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    const BucketSpec& bucket = plan.buckets[b];
    std::string names;
    for (int i = bucket.range.begin; i < bucket.range.end; ++i)
      names += str(names.empty() ? "" : ", ", parameters.at(i).name);
    if (bucket.is_part()) names += str(" [", bucket.part.begin, ", ", bucket.part.end, ")");
    texts.calls.push_back(str("bucket ", b, ": ", bucket.dtype, ", ", bucket.bytes, " bytes (", names, ")"));
  }
  std::string all;
  for (const std::string& line : texts.calls) all += line + "\n";
  texts.fingerprint = checksum(all);
  return texts;
}

// An all-reduce of disjoint slots instead of an all-gather: the same bytes, and its duration is a sample of what a
// small all-reduce costs (dist/planner.h).
RollCall::RollCall(ProcessGroup& group, const RollCallEntry& mine, std::shared_ptr<const RollCallTexts> texts,
                   std::vector<std::uint64_t> sums)
    : entries_(std::make_shared<std::vector<RollCallEntry>>()) {
  const std::size_t parameters = mine.used.size();
  const auto words = static_cast<std::int64_t>(kFixedWords + 2 * bit_words(parameters));
  Tensor slots = Tensor::zeros({group.size() * words}, DType::i64);
  encode(mine, slots.data<std::int64_t>() + group.rank() * words);
  bytes_ = slots.bytes();
  work_ = group.run({.operation = "roll_call",
                     .tensor = slots,
                     .run = [slots, words, parameters, entries = entries_, texts = std::move(texts),
                             sums = std::move(sums)](Transport& transport) mutable {
                       if (transport.size() > 1) transport.all_reduce(slots, Reduce::sum);
                       for (int rank = 0; rank < transport.size(); ++rank)
                         entries->push_back(decode(slots.data<std::int64_t>() + rank * words, parameters));
                       compare(*entries, *texts, sums, transport);
                     }});
}

int RollCall::active() const {
  return static_cast<int>(
      std::count_if(entries_->begin(), entries_->end(), [](const auto& e) { return e.active; }));
}

int RollCall::users(int position) const {
  return static_cast<int>(std::count_if(entries_->begin(), entries_->end(), [&](const RollCallEntry& e) {
    return e.used[static_cast<std::size_t>(position)];
  }));
}

int RollCall::frozen(int position) const {
  return static_cast<int>(std::count_if(entries_->begin(), entries_->end(), [&](const RollCallEntry& e) {
    return e.frozen[static_cast<std::size_t>(position)];
  }));
}

bool RollCall::wished(std::uint64_t bit) const {
  return std::any_of(entries_->begin(), entries_->end(),
                     [&](const auto& e) { return (e.wishes & bit) != 0; });
}

// mean over N of (w N / W) g = sum of (w / W) g.
double RollCall::scale(int rank) const {
  double total = 0;
  for (const RollCallEntry& entry : *entries_) total += entry.weight;
  return entries_->at(static_cast<std::size_t>(rank)).weight * static_cast<double>(entries_->size()) / total;
}

}  // namespace brigade::dist
