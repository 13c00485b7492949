// SPDX-License-Identifier: MIT
// tests/fuzz/entry.cpp - libFuzzer's entry (llvm.org/docs/LibFuzzer.html) to the target that the build names.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  brigade::fuzz::BRIGADE_FUZZ_TARGET({reinterpret_cast<const char*>(bytes), size});
  return 0;
}
