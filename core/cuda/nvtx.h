// SPDX-License-Identifier: MIT
// core/cuda/nvtx.h - ranges of core/profiler.h for NVIDIA's tools. No CUDA header.
#pragma once

#include "core/profiler.h"

namespace brigade {

/// NVTX ranges of the domain "brigade"; nullptr where no tool is attached to the process.
RangeSink* nvtx_ranges();

}  // namespace brigade
