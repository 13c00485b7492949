// SPDX-License-Identifier: MIT
// tests/core/cuda_devices_test.cpp - which devices a build can use, and what is said where it can use none. Runs
// without a device; what the emulated driver answers is told by [cuda] cases.
#include "core/cuda/devices.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;

TEST_CASE("machine code runs on later minors of its major, the last one's PTX on everything later",
          "[core][devices]") {
  const int built[] = {75, 80, 86, 90};
  REQUIRE(runs_on_capability(built, 7, 5));
  REQUIRE(runs_on_capability(built, 8, 0));
  REQUIRE(runs_on_capability(built, 8, 9));
  REQUIRE(runs_on_capability(built, 9, 0));
  REQUIRE(runs_on_capability(built, 12, 0));
  REQUIRE_FALSE(runs_on_capability(built, 7, 0));
  REQUIRE_FALSE(runs_on_capability(built, 6, 1));
  REQUIRE_FALSE(runs_on_capability(std::span(built).last(1), 8, 6));
  REQUIRE_FALSE(runs_on_capability({}, 9, 0));
}

TEST_CASE("a device that is not there is refused with the reason", "[core][devices][error]") {
  const Device none{DeviceType::cuda, device_count(DeviceType::cuda)};
  REQUIRE_THROWS_WITH(runtime(none), ContainsSubstring(str("no ", none)) &&
                                         ContainsSubstring(device_status(DeviceType::cuda)));
  REQUIRE_THROWS_WITH(device_name(none), ContainsSubstring(device_status(DeviceType::cuda)));
  REQUIRE_THROWS_WITH(runtime(Device{DeviceType::cuda, -1}), ContainsSubstring("no cuda:-1"));
}

TEST_CASE("the status names each device, and the devices differ in their UUIDs", "[core][.cuda]") {
  const int count = device_count(DeviceType::cuda);
  REQUIRE(count > 0);
  for (int index = 0; index < count; ++index) {
    const Device device{DeviceType::cuda, index};
    REQUIRE_THAT(device_status(DeviceType::cuda), ContainsSubstring(str(device, " ", device_name(device))));
    REQUIRE(device_uuid(device).size() == 36);
    if (index > 0) REQUIRE(device_uuid(device) != device_uuid(Device{DeviceType::cuda, index - 1}));
  }
}
