// SPDX-License-Identifier: MIT
// dist/emulated/emulated_transport.h - any transport behind a modelled network.
#pragma once

#include <memory>

#include "dist/emulated/network_model.h"
#include "dist/transport.h"

namespace brigade::dist {

/// Moves bytes through `inner` and returns no earlier than the model allows, counted from the moment at which all ranks
/// had arrived. The waiting thread sleeps, so that communication leaves the cores free as a network card does: on one
/// laptop this shows what overlap is worth.
std::unique_ptr<Transport> make_emulated_transport(std::unique_ptr<Transport> inner, NetworkModel model);

}  // namespace brigade::dist
