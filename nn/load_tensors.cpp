// SPDX-License-Identifier: MIT
// nn/load_tensors.cpp - checking before the first copy.
#include "nn/load_tensors.h"

#include <map>

#include "kernels/ops.h"

namespace brigade::nn {

namespace {

void append_list(std::string& out, const char* what, const std::vector<std::string>& items) {
  if (items.empty()) return;
  out += str(out.empty() ? "" : "; ", items.size(), " ", what, ":");
  for (const std::string& item : items) out += str(&item == &items.front() ? " " : ", ", item);
}

}  // namespace

LoadReport load_tensors(NamedTensors own, const NamedTensors& tensors, Strict strict) {
  LoadReport report;
  std::vector<std::string> repeated, mismatched;

  std::map<std::string, Tensor> given;
  for (const auto& [name, tensor] : tensors)
    if (!given.emplace(name, tensor).second) repeated.push_back(name);

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

}  // namespace brigade::nn
