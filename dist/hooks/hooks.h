// SPDX-License-Identifier: MIT
// dist/hooks/hooks.h - the makers behind the name table, one a file. Private to dist/hooks.
#pragma once

#include "dist/comm_hook.h"

namespace brigade::dist {

std::unique_ptr<CommHook> make_none(const optim::FlatParameters& parameters, const HookOptions& options);

/// What to multiply by before and after a sum over `size` ranks, so that the result is the mean.
struct DivideFactors {
  double before = 1, after = 1;
};
DivideFactors divide_factors(Divide divide, int size);

}  // namespace brigade::dist
