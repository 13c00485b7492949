// SPDX-License-Identifier: MIT
// core/fault_spec.h - the language of $BRIGADE_FAULT: which fault happens at which point, on which rank, when.
//
//   checkpoint.write:hit=3:rank=1:action=enospc;gradient:p=0.01:action=delay=200ms;seed=7
//
// Read next: core/fault_point.h, where it happens.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace brigade {

/// The places where a fault can be asked for. Their names and what they can do: fault_points().
enum class FaultAt : std::uint8_t {
  start,
  wrapping,
  data,
  activation,
  weight,
  backward,
  gradient,
  bucket,
  optimizer,
  evaluation,
  save,
  exit,
  checkpoint_mkdir,
  checkpoint_open,
  checkpoint_write,
  checkpoint_fsync,
  checkpoint_rename,
};

enum class FaultAction : std::uint8_t {
  throw_error,
  delay,
  hang,
  exit,
  kill,
  stop,
  nan,
  flip_bit,
  short_write,
  enospc,
  eio
};

/// What can happen at a point beside throw, delay, hang, exit, kill and stop, which can happen at all of them.
enum class FaultKind : std::uint8_t {
  plain,   ///< Nothing more.
  values,  ///< nan, flip.
  io,      ///< short, enospc, eio: a system call that is about to be made; flip where it has bytes.
};

struct FaultPointInfo {
  std::string_view name;
  FaultAt at;
  FaultKind kind;
  std::string_view where;  ///< For people.
};
const std::vector<FaultPointInfo>& fault_points();
std::string_view name(FaultAt at);
std::string_view name(FaultAction action);

/// One wish.
struct FaultClause {
  FaultAt at{};
  FaultAction action{};
  std::int64_t hit = 1;  ///< The n-th visit that fits the rest, from 1; 0: each with probability p.
  double p = 0;
  std::optional<int> rank = {};
  std::optional<std::int64_t> step = {};  ///< As the program counts them, from 1.
  std::string label = {};                 ///< Of the visit, like a parameter's name; empty: any.
  std::chrono::milliseconds delay{0};
  int exit_code = 1;
};

struct FaultSpec {
  std::vector<FaultClause> clauses;
  std::optional<std::uint64_t> seed;
};

/// Clauses are separated by ';', their parts by ':'; `name` first, then hit=N or p=P, rank=R, step=S, label=TEXT and
/// action=A, where A is throw, delay=200ms (or 2s), hang, exit or exit=N, kill, stop, nan, flip, short, enospc or eio.
/// Throws Error for what is unknown or cannot happen there, listing what can.
FaultSpec parse_fault_spec(std::string_view text);

}  // namespace brigade
