// SPDX-License-Identifier: MIT
// tests/support/device.cpp - the device of BRIGADE_TEST_DEVICE.
#include "tests/support/device.h"

#include <cstdlib>
#include <string_view>

namespace brigade::test {

Device test_device() {
  const char* const wish = std::getenv("BRIGADE_TEST_DEVICE");
  const std::string_view name = wish == nullptr ? "cpu" : wish;
  if (name == "cpu") return {};
  for (int index = 0; index < 16; ++index)
    if (const Device device{DeviceType::cuda, index}; name == str(device) || (index == 0 && name == "cuda"))
      return device;
  fail(str("BRIGADE_TEST_DEVICE: choose cpu, cuda or cuda:1; got ", name));
}

std::string missing_device() {
  const Device device = test_device();
  return device.index < device_count(device.type) ? "" : device_status(device.type);
}

bool device_is_emulated() { return device_name(test_device()).starts_with("emulated"); }

Tensor on_device(const Tensor& t) { return t.to(test_device()); }

}  // namespace brigade::test
