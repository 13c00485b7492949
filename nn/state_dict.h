// SPDX-License-Identifier: MIT
// nn/state_dict.h - a module's parameters and buffers by name, as PyTorch's state_dict.
// Read before: nn/module.h, core/safetensors.h.
#pragma once

#include "core/safetensors.h"
#include "nn/module.h"

namespace brigade::nn {

/// Parameters, then buffers, module by module in PyTorch's order; a shared parameter under each of its names.
/// The tensors share memory with the module.
NamedTensors state_dict(const Module& module);

enum class Strict : bool { no, yes };

struct LoadReport {
  std::vector<std::string> missing;     ///< In the module, not among the tensors.
  std::vector<std::string> unexpected;  ///< The other way round.
};

/// Copies tensors into the module by name, converting between floating dtypes.
/// Throws one Error that lists every missing, unexpected (both only if strict), repeated and
/// mismatched name, and then has changed nothing. A mismatch is another shape, or an integer for a
/// floating tensor or the reverse.
LoadReport load_state_dict(Module& module, const NamedTensors& tensors, Strict strict = Strict::yes);

/// To disk and back, strictly, as a safetensors file.
void save(const Module& module, const std::filesystem::path& path);
void load(Module& module, const std::filesystem::path& path);

}  // namespace brigade::nn
