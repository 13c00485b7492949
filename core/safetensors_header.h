// SPDX-License-Identifier: MIT
// core/safetensors_header.h - the JSON header of a safetensors file, both ways. Private to core: the public face is
// core/safetensors.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/safetensors.h"

namespace brigade {

inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;  // The format's own limit.

/// What a header says of one tensor.
struct SafetensorsEntry : TensorSpec {
  std::uint64_t begin = 0, end = 0;  ///< Bytes in the data section.
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< By offset; they tile the data section.
  Metadata metadata;
};

/// Throws Error, `where` and the rule, for whatever is not the header of `data_bytes` bytes of data.
SafetensorsHeader parse_safetensors_header(const std::string& where, const std::string& text,
                                           std::uint64_t data_bytes);
/// For tensors that follow each other without gap. Padded with spaces to a multiple of 8 bytes.
std::string make_safetensors_header(const std::string& where, const std::vector<TensorSpec>& tensors,
                                    const Metadata& metadata);

/// Names come from files: quoted and escaped, so that a message stays one line of text.
std::string quoted_name(const std::string& name);

}  // namespace brigade
