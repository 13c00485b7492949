// SPDX-License-Identifier: MIT
// core/safetensors.cpp - reading, into memory or as a mapping. Read before: core/safetensors_header.cpp.
#include "core/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "core/regular_file.h"
#include "core/safetensors_header.h"

namespace brigade {
namespace {

static_assert(std::endian::native == std::endian::little, "tensor data are read as they lie in memory");

using Read = std::function<void(std::uint64_t offset, void* to, std::uint64_t bytes)>;

struct Layout {
  std::uint64_t data_begin = 0;
  SafetensorsHeader header;
};

Layout read_layout(const std::string& where, std::uint64_t file_bytes, const Read& read) {
  std::uint64_t header_bytes = 0;
  BRIGADE_CHECK(file_bytes >= 8, where, "needs at least 8 bytes; got ", file_bytes);
  read(0, &header_bytes, 8);
  BRIGADE_CHECK(header_bytes <= kMaxSafetensorsHeader, where, "the header must be under 100 MB; got ",
                header_bytes, " bytes");
  BRIGADE_CHECK(header_bytes <= file_bytes - 8, where, "the header of ", header_bytes,
                " bytes reaches beyond the file of ", file_bytes, " bytes");
  std::string text(header_bytes, '\0');
  read(8, text.data(), header_bytes);
  const std::uint64_t begin = 8 + header_bytes;
  return {begin, parse_safetensors_header(where, text, file_bytes - begin)};
}

void check_elements(const std::string& where, const SafetensorsEntry& entry, const Tensor& tensor) {
  if (entry.dtype != DType::boolean) return;
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(tensor.raw());
  BRIGADE_CHECK(std::all_of(bytes, bytes + tensor.bytes(), [](std::uint8_t b) { return b <= 1; }), where,
                "tensor ", quoted_name(entry.name), ": BOOL elements must be 0 or 1");
}

SafetensorsFile read_tensors(const std::string& where, std::uint64_t file_bytes, const Read& read) {
  Layout layout = read_layout(where, file_bytes, read);
  SafetensorsFile result{{}, std::move(layout.header.metadata)};
  for (const SafetensorsEntry& entry : layout.header.entries) {
    Tensor tensor = Tensor::empty(entry.shape, entry.dtype);
    read(layout.data_begin + entry.begin, tensor.raw(), entry.end - entry.begin);
    check_elements(where, entry, tensor);
    result.tensors.emplace_back(entry.name, std::move(tensor));
  }
  return result;
}

}  // namespace

SafetensorsFile load_safetensors(const std::filesystem::path& path) {
  const std::string where = str("load_safetensors: ", path.string(), ": ");
  const RegularFile file(path, where);
  return read_tensors(where, static_cast<std::uint64_t>(file.bytes()),
                      [&](std::uint64_t offset, void* to, std::uint64_t bytes) {
                        file.read_at(static_cast<std::int64_t>(offset), to, static_cast<std::int64_t>(bytes));
                      });
}

SafetensorsFile parse_safetensors(std::span<const std::byte> bytes, const std::string& where) {
  return read_tensors(where, bytes.size(), [&](std::uint64_t offset, void* to, std::uint64_t count) {
    if (count > 0) std::memcpy(to, bytes.data() + offset, count);
  });
}

SafetensorsFile map_safetensors(const std::filesystem::path& path) {
  const std::string where = str("map_safetensors: ", path.string(), ": ");
  const RegularFile file(path, where);
  const Read read = [&](std::uint64_t offset, void* to, std::uint64_t bytes) {
    file.read_at(static_cast<std::int64_t>(offset), to, static_cast<std::int64_t>(bytes));
  };
  Layout layout = read_layout(where, static_cast<std::uint64_t>(file.bytes()), read);
  const Storage memory = file.map();
  SafetensorsFile result{{}, std::move(layout.header.metadata)};
  for (const SafetensorsEntry& entry : layout.header.entries) {
    const std::uint64_t begin = layout.data_begin + entry.begin;
    // Other writers need not align data: elements across their natural bounds are copied.
    const bool aligned = begin % static_cast<std::uint64_t>(size_of(entry.dtype)) == 0;
    Tensor tensor = aligned ? Tensor::over(memory.slice(static_cast<std::int64_t>(begin), entry.bytes()),
                                           entry.shape, entry.dtype)
                            : Tensor::empty(entry.shape, entry.dtype);
    if (!aligned) read(begin, tensor.raw(), entry.end - entry.begin);
    check_elements(where, entry, tensor);
    result.tensors.emplace_back(entry.name, std::move(tensor));
  }
  return result;
}

}  // namespace brigade
