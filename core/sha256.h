// SPDX-License-Identifier: MIT
// core/sha256.h - fingerprints of tensors and files (OpenSSL underneath).
#pragma once

#include <memory>
#include <span>
#include <string>

#include "core/tensor.h"

namespace brigade {

/// An incremental SHA-256.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  void update(std::span<const std::byte> bytes);
  /// Elements in logical row-major order, so that the result does not depend on strides.
  void update(const Tensor& tensor);
  /// 64 lower-case hex digits. Ends the computation.
  std::string hex();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace brigade
