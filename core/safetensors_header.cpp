// SPDX-License-Identifier: MIT
// core/safetensors_header.cpp - the JSON header: every number is checked before it is used.
#include "core/safetensors_header.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "core/one_line.h"

namespace brigade {
namespace {

using Json = nlohmann::ordered_json;  // Written, in the order of the tensors…
using Map = nlohmann::json;           // … and read: a key of the other costs a look at all before it.

static_assert(std::endian::native == std::endian::little, "tensor data are written as they lie in memory");

constexpr const char* kMetadataKey = "__metadata__";

struct DTypeName {
  DType dtype;
  std::string_view text;
};
constexpr std::array kDTypeNames{
    DTypeName{DType::f32, "F32"}, DTypeName{DType::f64, "F64"}, DTypeName{DType::bf16, "BF16"},
    DTypeName{DType::f16, "F16"}, DTypeName{DType::i32, "I32"}, DTypeName{DType::i64, "I64"},
    DTypeName{DType::u8, "U8"},   DTypeName{DType::i8, "I8"},   DTypeName{DType::boolean, "BOOL"}};

// Names come from files: escaped, so that a message stays one line of text.
std::string quoted(const std::string& name) {
  return Json(name).dump(-1, ' ', true, Json::error_handler_t::replace);
}

// `order`: the keys as they stand in the text.
Map parse_header(const std::string& where, const std::string& text, std::vector<std::string>& order) {
  BRIGADE_CHECK(text.starts_with('{'), where, "the header must be a JSON object");
  std::vector<std::set<std::string>>
      keys;  // Of the objects that are open: the parser itself keeps one of two.
  const auto refuse_duplicates = [&](int depth, Map::parse_event_t event, Map& parsed) {
    BRIGADE_CHECK(depth <= 3, where, "the header is nested too deep");
    if (event == Map::parse_event_t::object_start) keys.emplace_back();
    if (event == Map::parse_event_t::object_end) keys.pop_back();
    if (event == Map::parse_event_t::key) {
      const std::string key = parsed.get<std::string>(), text_of_key = quoted(key);
      BRIGADE_CHECK(keys.back().insert(key).second, where, "duplicate ",
                    keys.size() == 1 ? "tensor name " : "key ",
                    text_of_key.substr(1, text_of_key.size() - 2));
      if (keys.size() == 1) order.push_back(key);
    }
    return true;
  };
  try {
    return Map::parse(text, refuse_duplicates);
  } catch (const Map::exception& error) {
    fail(str(where, "the header is not JSON: ", one_line(error.what())));
  }
}

DType parse_dtype(const std::string& where, const Map& value) {
  BRIGADE_CHECK(value.is_string(), where, "dtype must be a string");
  for (const DTypeName& known : kDTypeNames)
    if (known.text == value.get_ref<const std::string&>()) return known.dtype;
  fail(str(where, "unknown dtype ", quoted(value.get<std::string>())));
}

// An unsigned integer of the JSON text: neither negative, fractional, text nor above 64 bits.
std::uint64_t parse_unsigned(const std::string& where, const char* what, const Map& value) {
  BRIGADE_CHECK(value.is_number_unsigned(), where, what, " must hold non-negative integers");
  return value.get<std::uint64_t>();
}

SafetensorsEntry parse_entry(const std::string& file, const std::string& name, const Map& info,
                             std::uint64_t data_bytes) {
  const std::string where = str(file, "tensor ", quoted(name), ": ");
  BRIGADE_CHECK(info.is_object() && info.size() == 3 && info.contains("dtype") && info.contains("shape") &&
                    info.contains("data_offsets"),
                where, "needs exactly dtype, shape and data_offsets");
  SafetensorsEntry entry{{name, parse_dtype(where, info["dtype"]), {}}, 0, 0};

  const Map& shape = info["shape"];
  BRIGADE_CHECK(shape.is_array() && shape.size() <= kMaxDims, where, "shape must be a list of at most ",
                kMaxDims, " sizes");
  std::uint64_t bytes = static_cast<std::uint64_t>(size_of(entry.dtype));
  for (const Map& item : shape) {
    const std::uint64_t size = parse_unsigned(where, "shape", item);
    BRIGADE_CHECK(!__builtin_mul_overflow(bytes, size, &bytes) && std::max(bytes, size) <= INT64_MAX, where,
                  "shape overflows 63 bits");
    entry.shape.push_back(static_cast<std::int64_t>(size));
  }

  const Map& offsets = info["data_offsets"];
  BRIGADE_CHECK(offsets.is_array() && offsets.size() == 2, where, "data_offsets must be [begin, end]");
  entry.begin = parse_unsigned(where, "data_offsets", offsets[0]);
  entry.end = parse_unsigned(where, "data_offsets", offsets[1]);
  BRIGADE_CHECK(entry.begin <= entry.end && entry.end <= data_bytes, where,
                "data_offsets must lie in order within the ", data_bytes, " bytes of data; got [",
                entry.begin, ", ", entry.end, "]");
  BRIGADE_CHECK(entry.end - entry.begin == bytes, where, entry.dtype, " ", entry.shape, " needs ", bytes,
                " bytes; data_offsets cover ", entry.end - entry.begin);
  return entry;
}

Metadata parse_metadata(const std::string& where, const Map& object) {
  BRIGADE_CHECK(object.is_object(), where, kMetadataKey, " must be an object of strings");
  Metadata metadata;
  for (const auto& [key, value] : object.items()) {
    BRIGADE_CHECK(value.is_string(), where, kMetadataKey, " must be an object of strings");
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

// Sorted by offset, the entries must tile the data section.
void check_tiling(const std::string& where, const std::vector<SafetensorsEntry>& entries,
                  std::uint64_t data_bytes) {
  std::uint64_t at = 0;
  for (const SafetensorsEntry& entry : entries) {
    BRIGADE_CHECK(entry.begin >= at, where, "tensor ", quoted(entry.name), " overlaps the one before it");
    BRIGADE_CHECK(entry.begin == at, where, "hole of ", entry.begin - at, " bytes before tensor ",
                  quoted(entry.name));
    at = entry.end;
  }
  BRIGADE_CHECK(at == data_bytes, where, data_bytes - at, " trailing bytes after the last tensor");
}

}  // namespace

std::string quoted_name(const std::string& name) { return quoted(name); }

SafetensorsHeader parse_safetensors_header(const std::string& where, const std::string& text,
                                           std::uint64_t data_bytes) {
  SafetensorsHeader result;
  std::vector<std::string> order;
  const Map header = parse_header(where, text, order);
  for (const std::string& name : order) {
    const Map& info = header.at(name);
    if (name == kMetadataKey)
      result.metadata = parse_metadata(where, info);
    else
      result.entries.push_back(parse_entry(where, name, info, data_bytes));
  }
  std::stable_sort(result.entries.begin(), result.entries.end(),
                   [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
                     return std::pair(a.begin, a.end) <
                            std::pair(b.begin, b.end);  // Empty tensors before their neighbour.
                   });
  check_tiling(where, result.entries, data_bytes);
  return result;
}

std::string make_safetensors_header(const std::string& where, const std::vector<TensorSpec>& tensors,
                                    const Metadata& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header[kMetadataKey] = metadata;
  std::set<std::string> names;
  std::int64_t at = 0;
  for (const TensorSpec& tensor : tensors) {
    BRIGADE_CHECK(tensor.name != kMetadataKey, where, "the name ", kMetadataKey, " is reserved");
    BRIGADE_CHECK(names.insert(tensor.name).second, where, "duplicate tensor name ", tensor.name);
    const auto dtype = std::find_if(kDTypeNames.begin(), kDTypeNames.end(),
                                    [&](const DTypeName& d) { return d.dtype == tensor.dtype; });
    header[tensor.name] = {{"dtype", dtype->text},
                           {"shape", std::vector<std::int64_t>(tensor.shape.begin(), tensor.shape.end())},
                           {"data_offsets", {at, at + tensor.bytes()}}};
    at += tensor.bytes();
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::exception&) {
    fail(str(where, "names and metadata must be UTF-8"));
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');  // Data then start on 8 bytes, as the reference writer does.
  BRIGADE_CHECK(text.size() <= kMaxSafetensorsHeader, where, "the header must be under 100 MB; got ",
                text.size(), " bytes");
  return text;
}

}  // namespace brigade
