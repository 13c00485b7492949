// SPDX-License-Identifier: MIT
// nn/state_dict.cpp - collecting and checking before the first copy.
#include "nn/state_dict.h"

#include <map>

#include "core/fault_point.h"
#include "kernels/ops.h"

namespace brigade::nn {

namespace {

void append_list(std::string& out, const char* what, const std::vector<std::string>& items) {
  if (items.empty()) return;
  out += str(out.empty() ? "" : "; ", items.size(), " ", what, ":");
  for (const std::string& item : items) out += str(&item == &items.front() ? " " : ", ", item);
}

}  // namespace

NamedTensors state_dict(const Module& module) {
  NamedTensors out;
  for (NamedBuffer& entry : module.named_tensors())
    out.emplace_back(std::move(entry.name), std::move(entry.tensor));
  return out;
}

LoadReport load_state_dict(Module& module, const NamedTensors& tensors, Strict strict) {
  LoadReport report;
  std::vector<std::string> repeated, mismatched;

  std::map<std::string, Tensor> given;
  for (const auto& [name, tensor] : tensors)
    if (!given.emplace(name, tensor).second) repeated.push_back(name);

  NamedTensors own = state_dict(module);
  std::map<std::string, Tensor> wanted(own.begin(), own.end());
  for (const auto& [name, target] : own) {
    const auto found = given.find(name);
    if (found == given.end())
      report.missing.push_back(name);
    else if (found->second.shape() != target.shape() ||
             is_floating(found->second.dtype()) != is_floating(target.dtype()))
      mismatched.push_back(str(name, " (", target, " here, ", found->second, " given)"));
  }
  for (const auto& [name, tensor] : tensors)
    if (!wanted.contains(name)) report.unexpected.push_back(name);

  std::string problems;
  if (strict == Strict::yes) append_list(problems, "missing", report.missing);
  if (strict == Strict::yes) append_list(problems, "unexpected", report.unexpected);
  append_list(problems, "repeated", repeated);
  append_list(problems, "mismatched", mismatched);
  BRIGADE_CHECK(problems.empty(), "load_state_dict: names and shapes must match the module's; got ",
                problems);

  for (auto& [name, target] : own)
    if (const auto found = given.find(name); found != given.end()) ops::copy_(target, found->second);
  return report;
}

void save(const Module& module, const std::filesystem::path& path) {
  fault_point(FaultAt::save);
  save_safetensors(path, state_dict(module));
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
