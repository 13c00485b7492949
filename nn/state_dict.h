// SPDX-License-Identifier: MIT
// nn/state_dict.h - a module's parameters and buffers by name, as PyTorch's state_dict.
// Read before: nn/module.h, nn/load_tensors.h.
#pragma once

#include "nn/load_tensors.h"
#include "nn/module.h"

namespace brigade::nn {

/// Parameters, then buffers, module by module in PyTorch's order; a shared parameter under each of its names.
/// The tensors share memory with the module.
NamedTensors state_dict(const Module& module);

/// load_tensors() into a module.
LoadReport load_state_dict(Module& module, const NamedTensors& tensors, Strict strict = Strict::yes);

/// To disk and back, strictly, as a safetensors file.
void save(const Module& module, const std::filesystem::path& path);
void load(Module& module, const std::filesystem::path& path);

}  // namespace brigade::nn
