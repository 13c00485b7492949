// SPDX-License-Identifier: MIT
// dist/nccl/nccl_calls.cpp - see the header.
#include "dist/nccl/nccl_calls.h"

#include <nccl.h>

#include "core/check.h"

namespace brigade::dist {

NcclVersions nccl_versions() {
  NcclVersions versions{.compiled = NCCL_VERSION_CODE};
  const ncclResult_t result = ncclGetVersion(&versions.loaded);
  BRIGADE_CHECK(result == ncclSuccess, nccl_error_text("ncclGetVersion", result, nullptr));
  return versions;
}

std::string nccl_version_text(int code) { return str(code / 10000, ".", code / 100 % 100, ".", code % 100); }

// Newer ones read the older header's structs, by the size that stands in them; older ones know no newer fields.
void check_nccl_versions(const NcclVersions& versions) {
  BRIGADE_CHECK(
      versions.loaded / 10000 == versions.compiled / 10000 && versions.loaded >= versions.compiled,
      "nccl: the library must not be older than the header, and of the same major version; got library ",
      nccl_version_text(versions.loaded), ", header ", nccl_version_text(versions.compiled),
      "; look at LD_LIBRARY_PATH");
}

std::string nccl_error_text(const char* call, int code, void* communicator) {
  const auto result = static_cast<ncclResult_t>(code);
  std::string out = str(call, ": ", ncclGetErrorString(result));
  const char* const last = ncclGetLastError(static_cast<ncclComm_t>(communicator));
  if (last != nullptr && *last != '\0') out += str(": ", last);
  if (result == ncclInvalidUsage || result == ncclSystemError || result == ncclInternalError)
    out += "; NCCL_DEBUG=WARN says more";
  return out;
}

}  // namespace brigade::dist
