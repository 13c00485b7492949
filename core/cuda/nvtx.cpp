// SPDX-License-Identifier: MIT
// core/cuda/nvtx.cpp - the sole user of NVTX, which is headers only: they look once for a tool that was injected
// (NVTX_INJECTION64_PATH, or by Nsight itself) and call nothing where there is none.
#include "core/cuda/nvtx.h"

#include <nvtx3/nvToolsExt.h>

namespace brigade {
namespace {

class NvtxRanges final : public RangeSink {
 public:
  explicit NvtxRanges(nvtxDomainHandle_t domain) : domain_(domain) {}

  // The tool copies the text.
  void begin(const std::string& name) override {
    nvtxEventAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = name.c_str();
    nvtxDomainRangePushEx(domain_, &attributes);
  }
  void end() override { nvtxDomainRangePop(domain_); }

 private:
  nvtxDomainHandle_t domain_;
};

}  // namespace

// A domain of ours can be shown or hidden as a whole, and tells whether anybody is there: without a tool it is null.
RangeSink* nvtx_ranges() {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("brigade");
  static NvtxRanges ranges(domain);
  return domain == nullptr ? nullptr : &ranges;
}

}  // namespace brigade
