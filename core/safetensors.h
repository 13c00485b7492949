// SPDX-License-Identifier: MIT
// core/safetensors.h - the safetensors file format: u64 little-endian header length, JSON
// header, raw tensors. Strict on reading: any deviation is refused with the tensor's name and
// the rule. Names are data, never paths.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace brigade {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
using Metadata = std::map<std::string, std::string>;

struct SafetensorsFile {
  NamedTensors tensors;  ///< In file order (by data offset); CPU memory.
  Metadata metadata;     ///< The optional "__metadata__" object.
};

/// Writes contiguous copies of `tensors` in their order, under a temporary name that is renamed when
/// complete. Throws Error naming path and reason (duplicate name, disk full, …); the old file is then intact.
void save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                      const Metadata& metadata = {});

/// Reads everything. Throws Error naming path, tensor and rule: header over 100 MB or beyond the file,
/// duplicate names, unknown dtype, shape that overflows or does not match its offsets, holes, overlaps,
/// trailing bytes. Nothing larger than the file is allocated.
SafetensorsFile load_safetensors(const std::filesystem::path& path);

}  // namespace brigade
