// SPDX-License-Identifier: MIT
// tests/fake_gpu/device.cpp - what the emulated devices say of themselves. FAKE_GPU_COUNT of them (2);
// FAKE_GPU_CAPABILITY times ten is their compute capability (what the build was made for); FAKE_GPU_DRIVER, like 12040,
// the CUDA version of their driver, 0 for none.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/fake_gpu/internal.h"

namespace fake_gpu {

std::int64_t setting(const char* name, std::int64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::strtoll(text, nullptr, 10);
}

int device_count() { return static_cast<int>(setting("FAKE_GPU_COUNT", 2)); }

namespace {

int capability() { return static_cast<int>(setting("FAKE_GPU_CAPABILITY", FAKE_GPU_CAPABILITY)); }
int driver() { return static_cast<int>(setting("FAKE_GPU_DRIVER", CUDART_VERSION)); }

struct Name {
  cudaError_t code;
  const char *name, *text;
};
constexpr Name kNames[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorMapBufferObjectFailed, "cudaErrorMapBufferObjectFailed", "mapping of buffer object failed"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
};

const Name* find(cudaError_t code) {
  for (const Name& name : kNames)
    if (name.code == code) return &name;
  return nullptr;
}

}  // namespace
}  // namespace fake_gpu

using namespace fake_gpu;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  if (driver() < CUDART_VERSION) return error(cudaErrorInsufficientDriver);
  if (device_count() == 0) return error(cudaErrorNoDevice);
  *count = device_count();
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = driver();
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= device_count()) return error(cudaErrorInvalidDevice);
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "emulated (threads of the host)");
  properties->major = capability() / 10;
  properties->minor = capability() % 10;
  properties->totalGlobalMem = static_cast<std::size_t>(setting("FAKE_GPU_MEMORY", 4096)) << 20;
  properties->multiProcessorCount = 4;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->warpSize = 32;
  properties->sharedMemPerBlock = std::size_t{48} << 10;
  properties->sharedMemPerBlockOptin = std::size_t{99} << 10;
  properties->pciBusID = device + 1;
  std::memcpy(properties->uuid.bytes, "emulated GPU  ", 14);
  properties->uuid.bytes[15] = static_cast<char>(device);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp properties;
  if (const cudaError_t code = cudaGetDeviceProperties(&properties, device); code != cudaSuccess) return code;
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = properties.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = properties.minor;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = properties.multiProcessorCount;
      break;
    case cudaDevAttrMaxThreadsPerBlock:
      *value = properties.maxThreadsPerBlock;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = properties.maxThreadsPerMultiProcessor;
      break;
    case cudaDevAttrWarpSize:
      *value = properties.warpSize;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = static_cast<int>(properties.sharedMemPerBlock);
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(properties.sharedMemPerBlockOptin);
      break;
    case cudaDevAttrPciBusId:
      *value = properties.pciBusID;
      break;
    default:
      return error(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  if (device < 0 || device >= device_count()) return error(cudaErrorInvalidDevice);
  std::snprintf(text, static_cast<std::size_t>(length), "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}

const char* cudaGetErrorName(cudaError_t code) {
  const Name* const name = find(code);
  return name != nullptr ? name->name : "cudaError";
}
const char* cudaGetErrorString(cudaError_t code) {
  const Name* const name = find(code);
  return name != nullptr ? name->text : "an error that the emulated GPU has no text for";
}
}
