// SPDX-License-Identifier: MIT
// nn/load_tensors.h - from a file's tensors into those of a run, all of them or none. Read before: core/safetensors.h.
#pragma once

#include <string>
#include <vector>

#include "core/safetensors.h"

namespace brigade::nn {

enum class Strict : bool { no, yes };

struct LoadReport {
  std::vector<std::string> missing;     ///< Wanted, not among the tensors.
  std::vector<std::string> unexpected;  ///< The other way round.
};

/// Copies `tensors` into `own` (a state dict, an optimizer's state, an average) by name, converting between floating
/// dtypes. Throws one Error that lists every missing, unexpected (both only if strict), repeated and mismatched name,
/// and then has changed nothing. A mismatch is another shape, or an integer for a floating tensor or the reverse.
LoadReport load_tensors(NamedTensors own, const NamedTensors& tensors, Strict strict = Strict::yes);

}  // namespace brigade::nn
