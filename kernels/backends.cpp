// SPDX-License-Identifier: MIT
// kernels/backends.cpp - the kernel tables that were compiled in. Adding a device adds a line here.
#include "kernels/kernels.h"

namespace brigade {

const KernelTable& cpu_kernels();  // kernels/cpu/table.cpp

const KernelTable& kernels(Device device) {
  switch (device.type) {
    case DeviceType::cpu:
      return cpu_kernels();
    case DeviceType::cuda:
      break;
  }
  fail(str("kernels: this build has no ", device, " support; choose cpu"));
}

}  // namespace brigade
