// SPDX-License-Identifier: MIT
// core/device.h - where a tensor's bytes are. What a device can do: core/runtime.h.
#pragma once

#include <cstdint>
#include <string>

#include "core/check.h"

namespace brigade {

enum class DeviceType : std::uint8_t { cpu, cuda };

struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;  ///< Ordinal among devices of its type; 0 for the CPU.

  friend bool operator==(const Device&, const Device&) = default;
};

inline void append_text(std::string& out, Device device) {
  out += device.type == DeviceType::cpu ? std::string("cpu") : "cuda:" + std::to_string(device.index);
}

}  // namespace brigade
