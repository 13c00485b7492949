// SPDX-License-Identifier: MIT
// core/safetensors.cpp - reading (every number of the header is checked before
// it is used) and atomic writing.
#include "core/safetensors.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "core/regular_file.h"

namespace brigade {

namespace {

using Json = nlohmann::ordered_json;  // Written, in the order of the tensors…
using Map = nlohmann::json;           // … and read: a key of the other costs a look at all before it.

static_assert(std::endian::native == std::endian::little, "tensor data are written as they lie in memory");

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // The format's own limit.
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

// ---- Reading ----------------------------------------------------------------------------------------------

struct Entry {
  std::string name;
  DType dtype;
  Shape shape;
  std::uint64_t begin, end;  // Bytes in the data section.
};

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
    fail(str(where, "the header is not JSON: ", error.what()));
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

Entry parse_entry(const std::string& file, const std::string& name, const Map& info,
                  std::uint64_t data_bytes) {
  const std::string where = str(file, "tensor ", quoted(name), ": ");
  BRIGADE_CHECK(info.is_object() && info.size() == 3 && info.contains("dtype") && info.contains("shape") &&
                    info.contains("data_offsets"),
                where, "needs exactly dtype, shape and data_offsets");
  Entry entry{name, parse_dtype(where, info["dtype"]), {}, 0, 0};

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
void check_tiling(const std::string& where, const std::vector<Entry>& entries, std::uint64_t data_bytes) {
  std::uint64_t at = 0;
  for (const Entry& entry : entries) {
    BRIGADE_CHECK(entry.begin >= at, where, "tensor ", quoted(entry.name), " overlaps the one before it");
    BRIGADE_CHECK(entry.begin == at, where, "hole of ", entry.begin - at, " bytes before tensor ",
                  quoted(entry.name));
    at = entry.end;
  }
  BRIGADE_CHECK(at == data_bytes, where, data_bytes - at, " trailing bytes after the last tensor");
}

// ---- Writing ----------------------------------------------------------------------------------------------

std::string make_header(const std::string& where, const NamedTensors& tensors, const Metadata& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header[kMetadataKey] = metadata;
  std::set<std::string> names;
  std::int64_t at = 0;
  for (const auto& [name, tensor] : tensors) {
    BRIGADE_CHECK(tensor.defined(), where, "tensor ", quoted(name), " is undefined");
    BRIGADE_CHECK(name != kMetadataKey, where, "the name ", kMetadataKey, " is reserved");
    BRIGADE_CHECK(names.insert(name).second, where, "duplicate tensor name ", name);
    const auto dtype =
        std::find_if(kDTypeNames.begin(), kDTypeNames.end(),
                     [&, type = tensor.dtype()](const DTypeName& d) { return d.dtype == type; });
    header[name] = {{"dtype", dtype->text},
                    {"shape", std::vector<std::int64_t>(tensor.shape().begin(), tensor.shape().end())},
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
  BRIGADE_CHECK(text.size() <= kMaxHeaderBytes, where, "the header must be under 100 MB; got ", text.size(),
                " bytes");
  return text;
}

/// A file that exists under its final name only once commit() has returned.
class AtomicFile {
 public:
  AtomicFile(const std::filesystem::path& path, std::int64_t bytes_needed)
      : path_(path), bytes_needed_(bytes_needed) {
    // Unique among processes and threads that save to one place.
    static std::atomic<int> counter{0};
    temporary_ = path;
    temporary_ += str(".tmp-", getpid(), "-", counter++);
    file_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file_ < 0) fail_with_errno("create");
  }
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile() {
    if (file_ >= 0) close(file_);
    if (!committed_) unlink(temporary_.c_str());
  }

  void write(const void* data, std::int64_t bytes) {
    const char* at = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t written = ::write(file_, at, static_cast<std::size_t>(bytes));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) fail_with_errno("write");
      at += written;
      bytes -= written;
    }
  }

  void commit() {
    // The data must be on disk before the name points to them, or a power cut could leave an empty file.
    if (fsync(file_) != 0) fail_with_errno("sync");
    if (close(std::exchange(file_, -1)) != 0) fail_with_errno("close");
    if (rename(temporary_.c_str(), path_.c_str()) != 0) fail_with_errno("rename");
    committed_ = true;
    const std::filesystem::path folder = path_.has_parent_path() ? path_.parent_path() : ".";
    const int directory = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory >= 0) {
      // Makes the new name durable; some file systems cannot, and the file is whole anyway.
      fsync(directory);
      close(directory);
    }
  }

 private:
  [[noreturn]] void fail_with_errno(const char* what) const {
    const int code = errno;
    fail(str("save_safetensors: cannot ", what, " ", path_.string(), ": ",
             std::generic_category().message(code), "; ", bytes_needed_, " bytes needed"));
  }

  std::filesystem::path path_, temporary_;
  std::int64_t bytes_needed_;
  int file_ = -1;
  bool committed_ = false;
};

void write_elements(AtomicFile& file, const Tensor& tensor) {
  if (tensor.is_contiguous() && tensor.device().type == DeviceType::cpu)
    return file.write(tensor.raw(), tensor.bytes());
  dispatch(tensor.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto elements = tensor.to_vector<T>();
    if constexpr (std::is_same_v<T, bool>) {
      const std::vector<std::uint8_t> bytes(elements.begin(), elements.end());  // vector<bool> has no data().
      file.write(bytes.data(), tensor.bytes());
    } else {
      file.write(elements.data(), tensor.bytes());
    }
  });
}

}  // namespace

SafetensorsFile load_safetensors(const std::filesystem::path& path) {
  const std::string where = str("load_safetensors: ", path.string(), ": ");
  RegularFile file(path, where);
  const auto file_bytes = static_cast<std::uint64_t>(file.bytes());

  std::uint64_t header_bytes = 0;
  BRIGADE_CHECK(file_bytes >= 8, where, "needs at least 8 bytes; got ", file_bytes);
  file.read(&header_bytes, 8);
  BRIGADE_CHECK(header_bytes <= kMaxHeaderBytes, where, "the header must be under 100 MB; got ", header_bytes,
                " bytes");
  BRIGADE_CHECK(header_bytes <= file_bytes - 8, where, "the header of ", header_bytes,
                " bytes reaches beyond the file of ", file_bytes, " bytes");
  std::string text(header_bytes, '\0');
  file.read(text.data(), static_cast<std::int64_t>(header_bytes));
  const std::uint64_t data_bytes = file_bytes - 8 - header_bytes;

  SafetensorsFile result;
  std::vector<Entry> entries;
  std::vector<std::string> order;
  const Map header = parse_header(where, text, order);
  for (const std::string& name : order) {
    const Map& info = header.at(name);
    if (name == kMetadataKey)
      result.metadata = parse_metadata(where, info);
    else
      entries.push_back(parse_entry(where, name, info, data_bytes));
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);  // Empty tensors before their neighbour.
  });
  check_tiling(where, entries, data_bytes);

  for (const Entry& entry : entries) {
    Tensor tensor = Tensor::empty(entry.shape, entry.dtype);
    file.read(tensor.raw(), tensor.bytes());
    if (entry.dtype == DType::boolean) {
      const auto* bytes = reinterpret_cast<const std::uint8_t*>(tensor.raw());
      BRIGADE_CHECK(std::all_of(bytes, bytes + tensor.bytes(), [](std::uint8_t b) { return b <= 1; }), where,
                    "tensor ", quoted(entry.name), ": BOOL elements must be 0 or 1");
    }
    result.tensors.emplace_back(entry.name, std::move(tensor));
  }
  return result;
}

void save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                      const Metadata& metadata) {
  const std::string where = str("save_safetensors: ", path.string(), ": ");
  const std::string header = make_header(where, tensors, metadata);
  const std::uint64_t header_bytes = header.size();
  std::int64_t total = 8 + static_cast<std::int64_t>(header_bytes);
  for (const auto& [name, tensor] : tensors) total += tensor.bytes();

  AtomicFile file(path, total);
  file.write(&header_bytes, 8);
  file.write(header.data(), static_cast<std::int64_t>(header_bytes));
  for (const auto& [name, tensor] : tensors) write_elements(file, tensor);
  file.commit();
}

}  // namespace brigade
