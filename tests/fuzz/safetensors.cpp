// SPDX-License-Identifier: MIT
// tests/fuzz/safetensors.cpp - what is accepted fills the file exactly, under names that differ.
#include "core/safetensors.h"

#include <cstring>
#include <set>

#include "tests/fuzz/targets.h"

namespace brigade::fuzz {

void safetensors(std::string_view bytes) {
  static MemoryFile file;
  file.hold(bytes);
  expect_error_or_success([&] {
    const SafetensorsFile got = load_safetensors(file.path());
    std::uint64_t header = 0, data = 0;
    std::memcpy(&header, bytes.data(), 8);
    std::set<std::string> names;
    for (const auto& [name, tensor] : got.tensors) {
      data += static_cast<std::uint64_t>(tensor.bytes());
      require(names.insert(name).second, "no name comes twice");
    }
    require(8 + header + data == bytes.size(), "header and tensors are the whole file");
  });
}

}  // namespace brigade::fuzz
