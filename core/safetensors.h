// SPDX-License-Identifier: MIT
// core/safetensors.h - the safetensors file format: u64 little-endian header length, JSON
// header, raw tensors. Strict on reading: any deviation is refused with the tensor's name and
// the rule. Names are data, never paths. Writing goes through core/durable_file.h.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/durable_file.h"
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
FileDigest save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                            const Metadata& metadata = {}, FileSystem& files = file_system());

/// Reads everything. Throws Error naming path, tensor and rule: no regular file, header over 100 MB or beyond the file,
/// duplicate names, unknown dtype, shape that overflows or does not match its offsets, holes, overlaps,
/// trailing bytes. Nothing larger than the file is allocated.
SafetensorsFile load_safetensors(const std::filesystem::path& path);

/// The same checks, but elements are read from disk when they are looked at: tensors are views of a private mapping,
/// which lives as long as one of them. Writing to them changes no file. Whoever shortens the file meanwhile ends this
/// process (SIGBUS): only for files that nobody else rewrites in place.
SafetensorsFile map_safetensors(const std::filesystem::path& path);

/// The same from memory, which is copied. `where` begins the messages.
SafetensorsFile parse_safetensors(std::span<const std::byte> bytes, const std::string& where);

/// What a header says of a tensor before its elements are there.
struct TensorSpec {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::int64_t bytes() const { return numel(shape) * size_of(dtype); }
};
/// Of tensors that exist. Throws Error, `where` first, for an undefined one.
std::vector<TensorSpec> specs_of(const NamedTensors& tensors, const std::string& where);

/// Writes a file tensor by tensor: all names and shapes are known in advance, the elements come later.
class SafetensorsWriter {
 public:
  /// Throws Error as save_safetensors() does.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorSpec> tensors,
                    const Metadata& metadata = {}, FileSystem& files = file_system());

  /// The elements of the next tensor. Throws Error if it is not the one announced, or cannot be written.
  void add(const std::string& name, const Tensor& tensor);
  /// After the last. The file is on disk under its name when this returns.
  FileDigest commit();

 private:
  std::string where_;
  std::vector<TensorSpec> tensors_;
  std::size_t next_ = 0;
  std::string header_;
  DurableFile file_;
};

}  // namespace brigade
