// SPDX-License-Identifier: MIT
// kernels/backends.cpp - the kernel tables that were compiled in. Adding a device adds a line here. The
// only #if of kernels.
#include "kernels/kernels.h"

namespace brigade {

const KernelTable& cpu_kernels();   // kernels/cpu/table.cpp
const KernelTable& cuda_kernels();  // kernels/cuda/table.cpp

const KernelTable& kernels(Device device) {
  switch (device.type) {
    case DeviceType::cpu:
      return cpu_kernels();
    case DeviceType::cuda:
#if BRIGADE_HAS_CUDA
      return cuda_kernels();
#else
      break;
#endif
  }
  fail(str("kernels: this build has no ", device, " support; choose cpu"));
}

}  // namespace brigade
