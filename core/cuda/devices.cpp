// SPDX-License-Identifier: MIT
// core/cuda/devices.cpp - looks once for devices and says in words what it found: no driver, too old a driver, no
// device, or a device for which this program has no code.
#include "core/cuda/devices.h"

#include <vector>

#include "core/cuda/check_cuda.h"

namespace brigade {
namespace {

constexpr int kBuilt[] = {BRIGADE_CUDA_ARCHITECTURES};

struct Found {
  std::vector<std::string> names, uuids;  // Of the devices that can be used.
  std::string status;
};

std::string version_text(int version) { return str(version / 1000, '.', version % 1000 / 10); }

std::string built_text() {
  std::string text;
  for (const int built : kBuilt) text += str(text.empty() ? "" : ", ", built / 10, '.', built % 10);
  return text;
}

std::string no_device(cudaError_t code) {
  int driver = 0, compiled = CUDART_VERSION;
  static_cast<void>(cudaDriverGetVersion(&driver));
  static_cast<void>(cudaRuntimeGetVersion(&compiled));
  if (driver == 0) return "no CUDA device: no NVIDIA driver (libcuda.so.1) is installed or loaded";
  if (code == cudaErrorInsufficientDriver)
    return str("no CUDA device: the driver knows CUDA ", version_text(driver), ", this program needs ",
               version_text(compiled), "; update the driver or build with an older toolkit");
  if (code == cudaSuccess || code == cudaErrorNoDevice)
    return "no CUDA device: the driver is there and lists none; look at nvidia-smi and CUDA_VISIBLE_DEVICES";
  return str("no CUDA device: ", cudaGetErrorString(code), " (", cudaGetErrorName(code), ")");
}

std::string uuid_text(const cudaUUID_t& uuid) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "GPU-";
  for (const char byte : uuid.bytes) {
    const auto bits = static_cast<unsigned char>(byte);
    text += kDigits[bits >> 4];
    text += kDigits[bits & 15];
  }
  return text;
}

Found find_devices() {
  Found found;
  int count = 0;
  if (const cudaError_t code = cudaGetDeviceCount(&count); code != cudaSuccess || count == 0) {
    static_cast<void>(cudaGetLastError());
    found.status = no_device(code);
    return found;
  }
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties;
    const cudaError_t code = cudaGetDeviceProperties(&properties, index);
    const std::string separator = index == 0 ? "" : "; ";
    if (code != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      found.status += str(separator, Device{DeviceType::cuda, index}, " fails: ", cudaGetErrorString(code));
      break;
    }
    const std::string text =
        str(Device{DeviceType::cuda, index}, " ", static_cast<const char*>(properties.name),
            ", compute capability ", properties.major, '.', properties.minor);
    if (!runs_on_capability(kBuilt, properties.major, properties.minor)) {
      // Ordinals must stay the driver's, so devices behind it are left out as well.
      found.status +=
          str(separator, text, ": not usable, this program was compiled for ", built_text(),
              "; configure with -DBRIGADE_CUDA_ARCHITECTURES=", properties.major, properties.minor);
      break;
    }
    found.names.emplace_back(properties.name);
    found.uuids.push_back(uuid_text(properties.uuid));
    found.status += separator + text;
  }
  return found;
}

// Asked once: devices neither come nor go in a process's life.
const Found& devices() {
  static const Found found = find_devices();
  return found;
}

}  // namespace

int cuda_device_count() noexcept {
  try {
    return static_cast<int>(devices().names.size());
  } catch (...) {
    return 0;  // No memory for a few names.
  }
}

std::string cuda_status() { return devices().status; }

namespace {

const std::string& of_device(const std::vector<std::string>& texts, int index) {
  BRIGADE_CHECK(index >= 0 && index < cuda_device_count(), "device: no ", Device{DeviceType::cuda, index},
                "; ", cuda_status());
  return texts[static_cast<std::size_t>(index)];
}

}  // namespace

std::string cuda_device_name(int index) { return of_device(devices().names, index); }
std::string cuda_device_uuid(int index) { return of_device(devices().uuids, index); }

void use_cuda_device(int index) {
  thread_local int current = -1;
  if (index == current) return;
  check_cuda(cudaSetDevice(index), "cudaSetDevice", "to use ", Device{DeviceType::cuda, index});
  current = index;
}

bool runs_on_capability(std::span<const int> built, int major, int minor) {
  for (const int capability : built)
    if (capability / 10 == major && capability % 10 <= minor) return true;
  return !built.empty() && built.back() <= 10 * major + minor;
}

}  // namespace brigade
