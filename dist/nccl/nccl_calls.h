// SPDX-License-Identifier: MIT
// dist/nccl/nccl_calls.h - NCCL's results as errors, and its versions. Only dist/nccl and dist/backends.cpp include it.
// Read next: dist/nccl/nccl_carrier.cpp.
#pragma once

#include <string>

namespace brigade::dist {

/// The NCCL that this program was compiled with and the one that is loaded: "2.28.9".
struct NcclVersions {
  int compiled = 0, loaded = 0;  ///< 22809: as nccl.h counts since 2.9.
};
NcclVersions nccl_versions();
std::string nccl_version_text(int code);
/// Throws Error unless the library that is loaded can do what was compiled: the same major version, and not older.
void check_nccl_versions(const NcclVersions& versions);

/// "ncclAllReduce: unhandled cuda error: <what the library says last>; all_reduce f32 x 100". `code`: an ncclResult_t.
std::string nccl_error_text(const char* call, int code, void* communicator);

}  // namespace brigade::dist
