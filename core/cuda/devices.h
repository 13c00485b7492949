// SPDX-License-Identifier: MIT
// core/cuda/devices.h - which CUDA devices this process can use, and which one a thread talks to. No CUDA header.
// Read next: core/cuda/runtime_cuda.cpp.
#pragma once

#include <span>
#include <string>

#include "core/runtime.h"

namespace brigade {

/// Devices cuda:0 … that can be used. Without a driver, or with one that is too old, 0; never throws.
int cuda_device_count() noexcept;
/// In words: the devices, or why there is none and what would help.
std::string cuda_status();
/// As the driver calls it.
std::string cuda_device_name(int index);
/// "GPU-" and 32 hexadecimal digits, as nvidia-smi shows them but for the dashes.
std::string cuda_device_uuid(int index);
/// The runtime of cuda:`index`. Throws Error with cuda_status() if it cannot be used.
Runtime& cuda_runtime(int index);

/// Makes cuda:`index` the one that the calling thread's CUDA calls go to. Cheap when it is so already, as long as
/// nobody but this function changes it.
void use_cuda_device(int index);

/// Whether code compiled for compute capabilities `built` (times ten, rising; PTX of the last one) runs on a device of
/// capability major.minor: machine code runs on later minors of its major, PTX on everything later.
bool runs_on_capability(std::span<const int> built, int major, int minor);

}  // namespace brigade
