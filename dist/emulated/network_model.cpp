// SPDX-License-Identifier: MIT
// dist/emulated/network_model.cpp - costs, and links as text.
#include "dist/emulated/network_model.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

#include "core/check.h"
#include "core/rng.h"

namespace brigade::dist {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};
constexpr Unit kBandwidths[] = {{"kbit", 1e3 / 8}, {"mbit", 1e6 / 8}, {"gbit", 1e9 / 8}};
constexpr Unit kTimes[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1.0}};

// "50us" -> 50e-6. Throws Error that names flag, text and units.
template <std::size_t N>
double parse_quantity(std::string_view flag, std::string_view text, const Unit (&units)[N]) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view suffix(end, static_cast<std::size_t>(text.data() + text.size() - end));
  std::string known;
  for (const Unit& unit : units) {
    if (error == std::errc() && suffix == unit.name && std::isfinite(value) && value > 0)
      return value * unit.factor;
    known += str(known.empty() ? "" : ", ", unit.name);
  }
  fail(str(flag, ": needs a positive number with one of the units ", known, "; got \"", text, "\""));
}

// Splits at the first `separator`; the second part is empty if there is none.
std::pair<std::string_view, std::string_view> split(std::string_view text, char separator) {
  const std::size_t at = text.find(separator);
  if (at == std::string_view::npos) return {text, {}};
  return {text.substr(0, at), text.substr(at + 1)};
}

template <class Number>
Number parse_number(std::string_view flag, std::string_view text, std::string_view whole) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  BRIGADE_CHECK(error == std::errc() && end == text.data() + text.size() && value >= 0, flag, ": \"", text,
                "\" is not a number of at least 0; got \"", whole, "\"");
  return value;
}

}  // namespace

Traffic traffic_of(std::string_view collective, std::int64_t bytes, int ranks) {
  if (ranks == 1) return {};
  const double p = ranks, n = static_cast<double>(bytes),
               rounds = std::bit_width(static_cast<unsigned>(ranks - 1));
  if (collective == "all_reduce") return {2 * (p - 1), 2 * (p - 1) / p * n};
  if (collective == "reduce_scatter" || collective == "all_gather" || collective == "all_to_all")
    return {p - 1, (p - 1) / p * n};
  if (collective == "gather" || collective == "scatter") return {rounds, (p - 1) / p * n};
  if (collective == "broadcast" || collective == "reduce") return {rounds, rounds * n};
  if (collective == "barrier") return {rounds, 0};
  if (collective == "send" || collective == "recv" || collective == "send_recv") return {1, n};
  fail(str("network model: unknown collective \"", collective, "\""));
}

const Link& NetworkModel::at(std::int64_t step) const {
  const Link* current = &links.front().link;
  for (const Change& change : links)
    if (change.from_step <= step) current = &change.link;
  return *current;
}

std::chrono::nanoseconds NetworkModel::time(std::string_view collective, std::int64_t bytes, int ranks,
                                            std::int64_t step, std::int64_t sequence) const {
  const Traffic traffic = traffic_of(collective, bytes, ranks);
  const Link& link = at(step);
  double slowest = 1;
  for (const auto& [rank, fraction] : slow_ranks)
    if (rank < ranks) slowest = std::min(slowest, fraction);
  double seconds = traffic.messages * link.latency_s + traffic.bytes / (link.bytes_per_s * slowest);
  // Never below zero; the same on every rank, because every rank asks with the same sequence.
  if (jitter > 0)
    seconds *= std::max(
        0.0, 1.0 + jitter * static_cast<double>(normal_at(seed, 0, static_cast<std::uint64_t>(sequence))));
  return std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
}

Link parse_link(std::string_view flag, std::string_view text) {
  const auto [bandwidth, latency] = split(text, ',');
  return {.latency_s = latency.empty() ? 0 : parse_quantity(flag, latency, kTimes),
          .bytes_per_s = parse_quantity(flag, bandwidth, kBandwidths)};
}

NetworkModel parse_network(std::string_view flag, std::string_view text) {
  NetworkModel model;
  const std::size_t second = text.find(',', std::min(text.find(','), text.size() - 1) + 1);
  if (second != std::string_view::npos) {
    const std::string_view jitter = text.substr(second + 1);
    BRIGADE_CHECK(jitter.ends_with('%'), flag, ": the third part is a jitter in percent, like 5%; got \"",
                  text, "\"");
    model.jitter = parse_number<double>(flag, jitter.substr(0, jitter.size() - 1), text) / 100;
    BRIGADE_CHECK(model.jitter >= 0 && model.jitter <= 1, flag, ": a jitter must lie in [0, 100] %; got \"",
                  text, "\"");
    text = text.substr(0, second);
  }
  model.links = {{0, parse_link(flag, text)}};
  return model;
}

std::vector<NetworkModel::Change> parse_schedule(std::string_view flag, std::string_view text,
                                                 const Link& base) {
  std::vector<NetworkModel::Change> out;
  for (std::string_view rest = text; !rest.empty();) {
    const auto [entry, tail] = split(rest, ',');
    const auto [step, bandwidth] = split(entry, ':');
    NetworkModel::Change change{parse_number<std::int64_t>(flag, step, text), base};
    change.link.bytes_per_s = parse_quantity(flag, bandwidth, kBandwidths);
    BRIGADE_CHECK(out.empty() ? change.from_step == 0 : change.from_step > out.back().from_step, flag,
                  ": steps must start at 0 and ascend; got \"", text, "\"");
    out.push_back(change);
    rest = tail;
  }
  BRIGADE_CHECK(!out.empty(), flag, ": needs STEP:BANDWIDTH,…; got nothing");
  return out;
}

std::pair<int, double> parse_slow_rank(std::string_view flag, std::string_view text) {
  const auto [rank, fraction] = split(text, ':');
  const std::pair<int, double> slow{parse_number<int>(flag, rank, text),
                                    parse_number<double>(flag, fraction, text)};
  BRIGADE_CHECK(slow.second > 0 && slow.second <= 1, flag,
                ": the fraction of the bandwidth must lie in (0, 1]; got \"", text, "\"");
  return slow;
}

}  // namespace brigade::dist
