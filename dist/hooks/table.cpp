// SPDX-License-Identifier: MIT
// dist/hooks/table.cpp - comm hooks by name. Adding one adds a line here.
#include <array>
#include <cmath>

#include "core/choices.h"
#include "dist/hooks/hooks.h"

namespace brigade::dist {
namespace {

constexpr std::array kHooks{
    HookEntry{"none", "as they are", make_none, true},
};

}  // namespace

DivideFactors divide_factors(Divide divide, int size) {
  const double n = size;
  switch (divide) {
    case Divide::before:
      return {1 / n, 1};
    case Divide::split:
      return {1 / std::sqrt(n), 1 / std::sqrt(n)};
    case Divide::automatic:
    case Divide::after:
      return {1, 1 / n};
  }
  fail("divide: not a place to divide");
}

std::span<const HookEntry> comm_hooks() { return kHooks; }

std::unique_ptr<CommHook> make_comm_hook(std::string_view name, const optim::FlatParameters& parameters,
                                         HookOptions options) {
  return choose("comm hook", name, kHooks).make(parameters, options);
}

}  // namespace brigade::dist
