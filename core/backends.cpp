// SPDX-License-Identifier: MIT
// core/backends.cpp - the devices that were compiled in. Adding one adds a line here.
#include "core/runtime.h"

namespace brigade {

Runtime& cpu_runtime();

Runtime& runtime(Device device) {
  switch (device.type) {
    case DeviceType::cpu:
      return cpu_runtime();
    case DeviceType::cuda:
      break;
  }
  fail(str("runtime: this build has no ", device, " support; choose cpu"));
}

int device_count(DeviceType type) { return type == DeviceType::cpu ? 1 : 0; }

}  // namespace brigade
