// SPDX-License-Identifier: MIT
// core/safetensors_writer.cpp - writing, tensor by tensor. Read before: core/durable_file.h.
#include <bit>

#include "core/safetensors.h"
#include "core/safetensors_header.h"

namespace brigade {
namespace {

static_assert(std::endian::native == std::endian::little, "tensor data are written as they lie in memory");

std::string where_of(const std::filesystem::path& path) {
  return str("save_safetensors: ", path.string(), ": ");
}

std::int64_t data_bytes(const std::vector<TensorSpec>& tensors) {
  std::int64_t bytes = 0;
  for (const TensorSpec& tensor : tensors) bytes += tensor.bytes();
  return bytes;
}

void write_elements(DurableFile& file, const Tensor& tensor) {
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

std::vector<TensorSpec> specs_of(const NamedTensors& tensors, const std::string& where) {
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : tensors) {
    BRIGADE_CHECK(tensor.defined(), where, "tensor ", quoted_name(name), " is undefined");
    specs.push_back({name, tensor.dtype(), tensor.shape()});
  }
  return specs;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorSpec> tensors,
                                     const Metadata& metadata, FileSystem& files)
    : where_(where_of(path)),
      tensors_(std::move(tensors)),
      header_(make_safetensors_header(where_, tensors_, metadata)),  // What it refuses leaves no file.
      file_(path, 8 + static_cast<std::int64_t>(header_.size()) + data_bytes(tensors_), "save_safetensors",
            files) {
  const std::uint64_t header_bytes = header_.size();
  file_.write(&header_bytes, 8);
  file_.write(header_.data(), static_cast<std::int64_t>(header_bytes));
}

void SafetensorsWriter::add(const std::string& name, const Tensor& tensor) {
  BRIGADE_CHECK(next_ < tensors_.size(), where_, "all tensors are written; got one more, ",
                quoted_name(name));
  const TensorSpec& spec = tensors_[next_++];
  BRIGADE_CHECK(name == spec.name && tensor.dtype() == spec.dtype && tensor.shape() == spec.shape, where_,
                "the next tensor must be ", quoted_name(spec.name), " ", spec.dtype, " ", spec.shape,
                "; got ", quoted_name(name), " ", tensor);
  write_elements(file_, tensor);
}

FileDigest SafetensorsWriter::commit() {
  BRIGADE_CHECK(next_ == tensors_.size(), where_, tensors_.size() - next_, " tensors are missing, ",
                quoted_name(next_ < tensors_.size() ? tensors_[next_].name : ""), " and what follows");
  return file_.commit();
}

FileDigest save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                            const Metadata& metadata, FileSystem& files) {
  SafetensorsWriter writer(path, specs_of(tensors, where_of(path)), metadata, files);
  for (const auto& [name, tensor] : tensors) writer.add(name, tensor);
  return writer.commit();
}

}  // namespace brigade
