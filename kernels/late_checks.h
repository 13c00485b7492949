// SPDX-License-Identifier: MIT
// kernels/late_checks.h - checks of values that lie on a device (labels and ids in range), for a thread that does not
// want to wait for each answer: the device writes down what it finds, and the Error comes a step later. Meanwhile an
// operation on such a value is harmless: a label out of range makes the loss a NaN, an id a row of NaNs.
// Read before: core/fetched.h. Used by kernels/ops_classification.cpp; a trainer holds one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/fetched.h"

namespace brigade {

/// While one lives, checks of the constructing thread on `device` are late. They do not nest. On the CPU all checks
/// stay where they are, as nothing is waited for.
class LateChecks {
 public:
  explicit LateChecks(Device device);
  ~LateChecks();
  LateChecks(const LateChecks&) = delete;
  LateChecks& operator=(const LateChecks&) = delete;

  /// What the device finds: i64 [2], the position of the first value that is wrong, or -1, and the value.
  struct Check {
    Tensor found;
    std::function<std::string(std::int64_t position, std::int64_t value)> text;
  };
  void add(Check check) { added_.push_back(std::move(check)); }
  /// The checks since the last fetch(), for who repeats the work that makes them: add() them before each fetch().
  std::vector<Check> take() { return std::exchange(added_, {}); }

  /// A step is enqueued: what its checks find is on its way to the host. In a capture nothing happens; nor in judge().
  void fetch();
  /// Throws Error, with the words of a check that is not late, if one that was fetched has found something. Blocks
  /// until the device is through with the step of the last fetch().
  void judge();

  /// The calling thread's; nullptr: checks of `device` are not late.
  static LateChecks* of(Device device);

 private:
  struct Pending {
    Check check;
    Fetched found;
  };
  Device device_;
  std::vector<Check> added_;
  std::vector<Pending> fetched_;
};

}  // namespace brigade
