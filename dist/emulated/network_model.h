// SPDX-License-Identifier: MIT
// dist/emulated/network_model.h - what a network costs: the α-β model of Hockney (1994), with jitter, scheduled changes
// and slow ranks. A value; read next: dist/emulated/emulated_transport.h, which makes ranks wait for it.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace brigade::dist {

/// One link between two ranks: a message of n bytes takes latency + n / bandwidth.
struct Link {
  double latency_s = 0;
  double bytes_per_s = std::numeric_limits<double>::infinity();
  friend bool operator==(const Link&, const Link&) = default;
};

/// How many messages a collective sends one after another, and how many bytes each rank puts on its link in all.
struct Traffic {
  double messages = 0;
  double bytes = 0;
};

/// Ring algorithms for the large collectives, a binomial tree for the rooted ones; `bytes` is the size of the (larger)
/// tensor. Costs as in Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH",
/// 2005. No traffic with one rank. Throws Error for a name that is no collective.
Traffic traffic_of(std::string_view collective, std::int64_t bytes, int ranks);

/// A network that may change while training goes on.
struct NetworkModel {
  struct Change {
    std::int64_t from_step = 0;  ///< Counts synchronised backwards.
    Link link;
    friend bool operator==(const Change&, const Change&) = default;
  };
  std::vector<Change> links{{}};                   ///< Ascending; the first starts at step 0.
  std::vector<std::pair<int, double>> slow_ranks;  ///< (rank, fraction of the bandwidth it has)
  double jitter = 0;                               ///< Standard deviation of the time, relative; seeded.
  std::uint64_t seed = 0;

  const Link& at(std::int64_t step) const;
  /// Time of one collective, call number `sequence`. A group is as slow as its slowest rank.
  std::chrono::nanoseconds time(std::string_view collective, std::int64_t bytes, int ranks, std::int64_t step,
                                std::int64_t sequence) const;
};

/// "1gbit,50us", "100mbit", "10gbit,5us": bandwidth in kbit, mbit, gbit (decimal, per second), then optionally the
/// latency in ns, us, ms, s. Throws Error naming `flag`.
Link parse_link(std::string_view flag, std::string_view text);
/// The same with an optional third part, the jitter of times in percent: "1gbit,50us,5%".
NetworkModel parse_network(std::string_view flag, std::string_view text);
/// "0:10gbit,200:1gbit": from which step which bandwidth; latencies stay those of `base`. Steps ascend.
std::vector<NetworkModel::Change> parse_schedule(std::string_view flag, std::string_view text,
                                                 const Link& base);
/// "2:0.5": rank 2 has half the bandwidth.
std::pair<int, double> parse_slow_rank(std::string_view flag, std::string_view text);

}  // namespace brigade::dist
