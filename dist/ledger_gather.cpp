// SPDX-License-Identifier: MIT
// dist/ledger_gather.cpp - records as words of 64 bits, and the collective that carries them.
#include "dist/ledger_gather.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace brigade::dist {
namespace {

// Of a message: the number of steps. Of a step: kStepWords, its buckets, its spans.
constexpr std::size_t kStepWords = 8, kBucketWords = 11, kSpanWords = 3;

std::size_t words_of(const StepRecord& step, bool with_spans) {
  return kStepWords + kBucketWords * step.buckets.size() + (with_spans ? kSpanWords * step.spans.size() : 0);
}

class Writer {
 public:
  explicit Writer(const ClockOffset& clock) : clock_(clock) {}
  void put(std::int64_t word) { words_.push_back(word); }
  void put(Clock::time_point t) { put(clock_.on_rank_0(t).time_since_epoch().count()); }
  void put(Clock::duration d) { put(static_cast<std::int64_t>(d.count())); }
  void put(const Interval& interval) { put(interval.begin), put(interval.end); }
  std::vector<std::int64_t> take() { return std::move(words_); }

 private:
  const ClockOffset& clock_;
  std::vector<std::int64_t> words_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::int64_t> words) : words_(words) {}
  std::int64_t word() {
    BRIGADE_CHECK(at_ < words_.size(), "ledger: a message of ", words_.size(), " words ends too early");
    return words_[at_++];
  }
  // A number of things of which each takes at least one word.
  std::size_t count() {
    const std::int64_t n = word();
    BRIGADE_CHECK(n >= 0 && static_cast<std::size_t>(n) <= words_.size(), "ledger: a message of ",
                  words_.size(), " words speaks of ", n, " records");
    return static_cast<std::size_t>(n);
  }
  Clock::duration duration() { return Clock::duration(word()); }
  Clock::time_point time() { return Clock::time_point(duration()); }
  Interval interval() {
    const Clock::time_point begin = time();
    return {begin, time()};
  }

 private:
  std::span<const std::int64_t> words_;
  std::size_t at_ = 0;
};

void put(Writer& out, const StepRecord& step, bool with_spans) {
  out.put(step.step);
  out.put(step.plan_epoch);
  out.put(step.whole);
  out.put(step.backward);
  out.put(static_cast<std::int64_t>(step.buckets.size()));
  out.put(static_cast<std::int64_t>(with_spans ? step.spans.size() : 0));
  for (const BucketRecord& b : step.buckets) {
    out.put(static_cast<std::int64_t>(b.bucket));
    out.put(b.bytes);
    out.put(static_cast<std::int64_t>(b.parameters));
    for (const auto t : {b.first_ready, b.last_ready, b.launch, b.start, b.end}) out.put(t);
    out.put(b.waited);
    out.put(b.wire_bytes);
    out.put(std::bit_cast<std::int64_t>(b.square_norm));
  }
  if (!with_spans) return;
  for (const TimedSpan& span : step.spans) {
    out.put((static_cast<std::int64_t>(span.layer) << 32) | (static_cast<std::int64_t>(span.depth) << 8) |
            static_cast<std::int64_t>(span.kind));
    out.put(span.begin);
    out.put(span.end);
  }
}

StepRecord take_step(Reader& in) {
  StepRecord step;
  step.step = in.word();
  step.plan_epoch = in.word();
  step.whole = in.interval();
  step.backward = in.interval();
  step.buckets.resize(in.count());
  step.spans.resize(in.count());
  for (BucketRecord& b : step.buckets) {
    b.bucket = static_cast<int>(in.word());
    b.bytes = in.word();
    b.parameters = static_cast<int>(in.word());
    for (auto* t : {&b.first_ready, &b.last_ready, &b.launch, &b.start, &b.end}) *t = in.time();
    b.waited = in.duration();
    b.wire_bytes = in.word();
    b.square_norm = std::bit_cast<double>(in.word());
  }
  for (TimedSpan& span : step.spans) {
    const std::int64_t packed = in.word();
    span.layer = static_cast<std::int32_t>(packed >> 32);
    span.depth = static_cast<std::int16_t>((packed >> 8) & 0x7fff);
    const auto kind = static_cast<std::uint8_t>(packed & 0xff);
    BRIGADE_CHECK(kind <= static_cast<std::uint8_t>(SpanKind::other), "ledger: unknown kind of span ",
                  static_cast<int>(kind));
    span.kind = static_cast<SpanKind>(kind);
    span.begin = in.time();
    span.end = in.time();
  }
  return step;
}

}  // namespace

std::vector<std::int64_t> encode_steps(const Ledger& ledger, std::int64_t first, const ClockOffset& clock,
                                       std::size_t max_words) {
  // From the newest back, as far as there is room.
  std::vector<std::pair<const StepRecord*, bool>> chosen;
  std::size_t words = 1;
  for (auto step = ledger.steps().rbegin(); step != ledger.steps().rend() && step->step >= first; ++step) {
    if (!step->settled) continue;  // Its turn comes later: see LedgerGather::begin().
    const bool with_spans = words + words_of(*step, true) <= max_words;
    if (words + words_of(*step, with_spans) > max_words) break;
    words += words_of(*step, with_spans);
    chosen.emplace_back(&*step, with_spans);
  }
  Writer out(clock);
  out.put(static_cast<std::int64_t>(chosen.size()));
  for (auto entry = chosen.rbegin(); entry != chosen.rend(); ++entry) put(out, *entry->first, entry->second);
  return out.take();
}

std::vector<StepRecord> decode_steps(std::span<const std::int64_t> words) {
  Reader in(words);
  std::vector<StepRecord> steps(in.count());
  for (StepRecord& step : steps) step = take_step(in);
  return steps;
}

Straggler GatheredStep::straggler(std::size_t bucket) const {
  std::vector<Clock::time_point> times;
  for (const StepRecord& record : ranks) {
    BRIGADE_CHECK(bucket < record.buckets.size(), "straggler: step ", step, " has ", record.buckets.size(),
                  " buckets; got bucket ", bucket);
    times.push_back(record.buckets[bucket].last_ready);
  }
  return dist::straggler(times);
}

Straggler GatheredStep::straggler() const {
  std::vector<Clock::time_point> times;
  for (const StepRecord& record : ranks) {
    times.push_back(record.backward.begin);
    for (const BucketRecord& bucket : record.buckets)
      times.back() = std::max(times.back(), bucket.last_ready);
  }
  return dist::straggler(times);
}

// Written on the communication stream, read when the call is done.
struct LedgerGather::Shared {
  std::vector<std::int64_t> mine;
  bool compare_clocks = false;
  std::vector<ClockOffset> clocks;                 // Empty: not compared.
  std::vector<std::vector<std::int64_t>> arrived;  // By rank, on rank 0.

  void compare(Transport& transport) {
    const ClockOffset own = measure_clock(transport);
    Tensor all = Tensor::zeros({transport.size(), 3}, DType::i64);
    transport.gather(Tensor::from(std::vector<std::int64_t>{own.offset.count(), own.error.count(),
                                                            own.measured.time_since_epoch().count()},
                                  {3}),
                     all, 0);
    clocks = {own};
    if (transport.rank() > 0) return;
    const auto words = all.to_vector<std::int64_t>();
    for (std::size_t r = 1; r < static_cast<std::size_t>(transport.size()); ++r)
      clocks.push_back({Clock::duration(words[3 * r]), Clock::duration(words[3 * r + 1]),
                        Clock::time_point(Clock::duration(words[3 * r + 2]))});
  }

  void run(Transport& transport) {
    const auto size = static_cast<std::size_t>(transport.size());
    // Sizes first, since collectives move equal amounts; and what rank 0 wants, since one clock must decide.
    const std::int64_t length = static_cast<std::int64_t>(mine.size());
    Tensor all_sizes = Tensor::empty({transport.size(), 2}, DType::i64);
    transport.all_gather_control(Tensor::from(std::vector<std::int64_t>{length, compare_clocks ? 1 : 0}, {2}),
                                 all_sizes);
    const auto sizes = all_sizes.to_vector<std::int64_t>();
    if (sizes[1] != 0) compare(transport);
    std::int64_t longest = 0;
    for (std::size_t r = 0; r < size; ++r) longest = std::max(longest, sizes[2 * r]);

    mine.resize(static_cast<std::size_t>(longest));
    const bool is_root = transport.rank() == 0;
    Tensor all = Tensor::empty({is_root ? transport.size() * longest : 0}, DType::i64);
    transport.gather(Tensor::from(mine, {longest}), all, 0);
    if (!is_root) return;
    for (std::size_t r = 0; r < size; ++r) {
      const std::int64_t* const begin = all.data<std::int64_t>() + static_cast<std::int64_t>(r) * longest;
      arrived.emplace_back(begin, begin + sizes[2 * r]);
    }
  }
};

LedgerGather::LedgerGather(ProcessGroup& group, const Ledger& ledger)
    : group_(&group), ledger_(&ledger), clocks_(1), work_() {
  const auto shared = std::make_shared<Shared>();
  group.run({.operation = "clocks", .run = [shared](Transport& transport) { shared->compare(transport); }})
      .wait();
  clocks_ = shared->clocks;
}

void LedgerGather::begin() {
  BRIGADE_CHECK(!under_way(), "ledger gather: finish() the last one first");
  shared_ = std::make_shared<Shared>();
  shared_->mine = encode_steps(*ledger_, next_, clocks_.front(), kMaxBytes / sizeof(std::int64_t));
  shared_->compare_clocks = Clock::now() - clocks_.front().measured > kClockPeriod;
  next_ = ledger_->steps_settled();
  work_ = group_->run(
      {.operation = "ledgers", .run = [shared = shared_](Transport& transport) { shared->run(transport); }});
}

std::vector<GatheredStep> LedgerGather::finish() {
  if (!under_way()) return {};
  const auto shared = std::exchange(shared_, nullptr);
  work_.wait();
  if (!shared->clocks.empty()) clocks_ = shared->clocks;
  std::vector<GatheredStep> steps;
  for (std::size_t rank = 0; rank < shared->arrived.size(); ++rank)
    for (StepRecord& record : decode_steps(shared->arrived[rank])) {
      // A step counts once all ranks have it: one with larger messages may have dropped more.
      if (rank == 0) steps.push_back({.step = record.step, .ranks = {}});
      const auto at = std::find_if(steps.begin(), steps.end(),
                                   [&](const GatheredStep& s) { return s.step == record.step; });
      if (at != steps.end() && at->ranks.size() == rank) at->ranks.push_back(std::move(record));
    }
  std::erase_if(steps, [&](const GatheredStep& s) { return s.ranks.size() < shared->arrived.size(); });
  return steps;
}

}  // namespace brigade::dist
