// SPDX-License-Identifier: MIT
// core/sha256.cpp - OpenSSL's EVP digest behind core/sha256.h.
#include "core/sha256.h"

#include <openssl/evp.h>

#include <vector>

namespace brigade {

struct Sha256::Impl {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~Impl() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : impl_(std::make_unique<Impl>()) {
  BRIGADE_CHECK(EVP_DigestInit_ex(impl_->context, EVP_sha256(), nullptr) == 1,
                "sha256: OpenSSL cannot start");
}
Sha256::~Sha256() = default;

void Sha256::update(std::span<const std::byte> bytes) {
  BRIGADE_CHECK(EVP_DigestUpdate(impl_->context, bytes.data(), bytes.size()) == 1, "sha256: OpenSSL failed");
}

void Sha256::update(const Tensor& tensor) {
  if (tensor.is_contiguous()) {
    std::vector<std::byte> host;
    const std::byte* bytes = tensor.raw();
    if (tensor.device().type != DeviceType::cpu) {
      host.resize(static_cast<std::size_t>(tensor.bytes()));
      runtime(tensor.device()).copy_to_host(host.data(), tensor.raw(), tensor.bytes());
      bytes = host.data();
    }
    update(std::span(bytes, static_cast<std::size_t>(tensor.bytes())));
    return;
  }
  dispatch(tensor.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    // Typed T, not auto: an element of std::vector<bool> is a proxy, whose bytes are an address.
    for (const T value : tensor.to_vector<T>()) update(std::as_bytes(std::span(&value, 1)));
  });
}

std::string Sha256::hex() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  BRIGADE_CHECK(EVP_DigestFinal_ex(impl_->context, digest, &size) == 1, "sha256: OpenSSL failed");
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (unsigned int i = 0; i < size; ++i) {
    out += kDigits[digest[i] >> 4];
    out += kDigits[digest[i] & 15];
  }
  return out;
}

}  // namespace brigade
