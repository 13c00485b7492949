// SPDX-License-Identifier: MIT
// core/cuda/runtime_cuda.cpp - memory and streams of a CUDA device.
#include "core/cuda/devices.h"

namespace brigade {

Runtime& cuda_runtime(int index) {
  BRIGADE_CHECK(index >= 0 && index < cuda_device_count(), "runtime: no ", Device{DeviceType::cuda, index},
                "; ", cuda_status());
  fail("runtime: CUDA memory and streams are not there yet");
}

}  // namespace brigade
