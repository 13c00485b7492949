// SPDX-License-Identifier: MIT
// core/choices.h - name tables: a flag's values, its help text and its error come from one list.
// A table is any range of entries with a `name`; see nn/optim/catalog.h for one.
#pragma once

#include <string>
#include <string_view>

#include "core/check.h"

namespace brigade {

/// "sgd, adamw, lars"
template <class Table>
std::string choices(const Table& table) {
  std::string out;
  for (const auto& entry : table) out += str(out.empty() ? "" : ", ", entry.name);
  return out;
}

/// The entry called `name`. Throws Error `unknown optimizer "adam"; choose from sgd, adamw, lars`.
template <class Table>
const auto& choose(std::string_view what, std::string_view name, const Table& table) {
  for (const auto& entry : table)
    if (entry.name == name) return entry;
  fail(str("unknown ", what, " \"", name, "\"; choose from ", choices(table)));
}

}  // namespace brigade
