// SPDX-License-Identifier: MIT
// nn/state_dict.cpp - a module's tensors by name.
#include "nn/state_dict.h"

#include "core/fault_point.h"

namespace brigade::nn {

NamedTensors state_dict(const Module& module) {
  NamedTensors out;
  for (NamedBuffer& entry : module.named_tensors())
    out.emplace_back(std::move(entry.name), std::move(entry.tensor));
  return out;
}

LoadReport load_state_dict(Module& module, const NamedTensors& tensors, Strict strict) {
  return load_tensors(state_dict(module), tensors, strict);
}

void save(const Module& module, const std::filesystem::path& path) {
  fault_point(FaultAt::save);
  NamedTensors tensors = state_dict(module);
  for (auto& [name, tensor] : tensors) tensor = tensor.to({});
  save_safetensors(path, tensors);
}

void load(Module& module, const std::filesystem::path& path) {
  const NamedTensors tensors = load_safetensors(path).tensors;
  try {
    load_state_dict(module, tensors);
  } catch (const Error& error) {
    fail(str(path.string(), ": ", error.what()));
  }
}

}  // namespace brigade::nn
