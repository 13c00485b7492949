// SPDX-License-Identifier: MIT
// dist/tcp/tcp_transport.h - the transport over sockets, a pair of them between any two ranks: for ranks that nobody
// but torchrun, or a shell, has started. Read before: dist/tcp/tcp_lines.h. Read next: dist/tcp/torchrun_job.h.
#pragma once

#include <memory>
#include <vector>

#include "dist/tcp/tcp_lines.h"

namespace brigade::dist {

/// A group of `ranks` (empty: all), this one among them, on connections that other groups of this process may use as
/// well, one call at a time: all ranks make their calls in one order.
///
/// Short tensors go from everybody to everybody and are reduced in rank order; long ones around a ring. Waits sleep.
/// A rank that is lost is named at once; why a group was ended reaches all ranks over lines of its own.
std::unique_ptr<Transport> make_tcp_transport(std::shared_ptr<TcpLines> lines, std::vector<int> ranks = {});

}  // namespace brigade::dist
