// SPDX-License-Identifier: MIT
// tests/fake_gpu/nvtx.cpp - a tool for NVTX: with NVTX_INJECTION64_PATH=<this library> a program's ranges are written
// down, thread by thread, and fake_nvtx_ranges() tells them. Needs no GPU, nor an emulated one.
#include <nvtx3/nvToolsExt.h>

#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>

namespace {

struct Domain {
  std::string name;
};

// By thread: a range a line, indented by one space for each range around it.
struct Written {
  std::mutex mutex;
  std::unordered_map<std::thread::id, std::string> lines;
};
Written& written() {
  static Written& all = *new Written;  // Threads may outlive static destructors.
  return all;
}
thread_local int depth = 0;

nvtxDomainHandle_t create(const char* name) {
  return reinterpret_cast<nvtxDomainHandle_t>(new Domain{name});  // As long as the process.
}

int push(nvtxDomainHandle_t handle, const nvtxEventAttributes_t* attributes) {
  const auto* const domain = reinterpret_cast<const Domain*>(handle);
  if (domain->name != "brigade" || attributes->messageType != NVTX_MESSAGE_TYPE_ASCII) return -1;
  const std::lock_guard lock(written().mutex);
  std::string& lines = written().lines[std::this_thread::get_id()];
  lines += std::string(static_cast<std::size_t>(depth), ' ') + attributes->message.ascii + '\n';
  return depth++;
}

int pop(nvtxDomainHandle_t) { return --depth; }

void set(NvtxFunctionTable table, unsigned int size, unsigned int at, NvtxFunctionPointer function) {
  if (at < size) *table[at] = function;
}

}  // namespace

extern "C" {

/// What NVTX calls in a library that it was told to inject. Returns 1: we listen.
[[gnu::visibility("default")]] int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  const auto* const tables = static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (tables == nullptr || tables->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) return 0;
  set(table, size, NVTX_CBID_CORE2_DomainCreateA, reinterpret_cast<NvtxFunctionPointer>(create));
  set(table, size, NVTX_CBID_CORE2_DomainRangePushEx, reinterpret_cast<NvtxFunctionPointer>(push));
  set(table, size, NVTX_CBID_CORE2_DomainRangePop, reinterpret_cast<NvtxFunctionPointer>(pop));
  return 1;
}

/// The ranges of the calling thread (`others`: of all other threads, in no order), until the next call on this thread.
[[gnu::visibility("default")]] const char* fake_nvtx_ranges(int others) {
  thread_local std::string text;
  text.clear();
  const std::lock_guard lock(written().mutex);
  for (const auto& [thread, lines] : written().lines)
    if ((thread == std::this_thread::get_id()) != (others != 0)) text += lines;
  return text.c_str();
}
}
