// SPDX-License-Identifier: MIT
// core/backends.cpp - the devices that were compiled in. Adding one adds a line here. The only #if of core.
#include "core/graph.h"
#include "core/profiler.h"
#include "core/runtime.h"

#if BRIGADE_HAS_CUDA
#include "core/cuda/devices.h"
#include "core/cuda/graph_cuda.h"
#include "core/cuda/nvtx.h"
#endif

namespace brigade {

Runtime& cpu_runtime();

#if !BRIGADE_HAS_CUDA
namespace {

constexpr const char* kNoCuda =
    "this build has no CUDA; install the toolkit and configure with -DBRIGADE_WITH_CUDA=ON";

int cuda_device_count() { return 0; }
std::string cuda_status() { return kNoCuda; }
std::string cuda_device_name(int) { fail(kNoCuda); }
std::string cuda_device_uuid(int) { fail(kNoCuda); }
RangeSink* nvtx_ranges() { return nullptr; }
std::unique_ptr<Graph> cuda_capture(int, const std::function<void()>&) { fail(kNoCuda); }
bool cuda_is_capturing(int) { return false; }
Runtime& cuda_runtime(int index) {
  fail(str("runtime: no ", Device{DeviceType::cuda, index}, ": ", kNoCuda, ", or choose cpu"));
}

}  // namespace
#endif

Runtime& runtime(Device device) {
  switch (device.type) {
    case DeviceType::cpu:
      return cpu_runtime();
    case DeviceType::cuda:
      return cuda_runtime(device.index);
  }
  fail(str("runtime: no device of type ", static_cast<int>(device.type), "; choose cpu or cuda"));
}

int device_count(DeviceType type) { return type == DeviceType::cpu ? 1 : cuda_device_count(); }

std::string device_status(DeviceType type) { return type == DeviceType::cpu ? "cpu" : cuda_status(); }

std::string device_name(Device device) {
  return device.type == DeviceType::cpu ? "CPU" : cuda_device_name(device.index);
}

std::string device_uuid(Device device) {
  return device.type == DeviceType::cpu ? "" : cuda_device_uuid(device.index);
}

std::unique_ptr<Graph> capture(Device device, const std::function<void()>& record) {
  BRIGADE_CHECK(device.type == DeviceType::cuda, "capture: records work of a CUDA device only; got ", device);
  return cuda_capture(device.index, record);
}

bool is_capturing(Device device) {
  return device.type == DeviceType::cuda && cuda_is_capturing(device.index);
}

RangeSink* profiler() { return nvtx_ranges(); }

}  // namespace brigade
