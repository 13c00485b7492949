// SPDX-License-Identifier: MIT
// core/choices.h - name tables: a flag's values, its help text and its error come from one list.
// A table is any range of entries with a `name`; see nn/optim/catalog.cpp for one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "core/one_line.h"

namespace brigade {

/// The names, for --help.
template <class Table>
std::vector<std::string_view> names(const Table& table) {
  std::vector<std::string_view> out;
  for (const auto& entry : table) out.push_back(entry.name);
  return out;
}

/// The entry called `name`. Throws Error `unknown optimizer "adam"; choose from sgd, adamw, lars`.
template <class Table>
const auto& choose(std::string_view what, std::string_view name, const Table& table) {
  for (const auto& entry : table)
    if (entry.name == name) return entry;
  std::string choices;
  for (const auto& entry : table) choices += str(choices.empty() ? "" : ", ", entry.name);
  fail(str("unknown ", what, " \"", one_line(name), "\"; choose from ", choices));
}

}  // namespace brigade
