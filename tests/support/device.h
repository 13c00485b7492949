// SPDX-License-Identifier: MIT
// tests/support/device.h - the device that tests by parameter run on. The environment names it:
// BRIGADE_TEST_DEVICE=cpu (the default), cuda or cuda:1. Where it is not there, main() skips the whole program.
#pragma once

#include <string>

#include "core/tensor.h"

namespace brigade::test {

Device test_device();
/// Empty if test_device() is there; else why it is not.
std::string missing_device();
/// Whether it is the emulated one of tests/fake_gpu.
bool device_is_emulated();

/// `t` on test_device(); itself if it is there.
Tensor on_device(const Tensor& t);

}  // namespace brigade::test
