// SPDX-License-Identifier: MIT
// core/checksum.cpp - see the header.
#include "core/checksum.h"

#include <xxhash.h>

#include <new>

namespace brigade {

std::uint64_t checksum(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

struct Checksum128::Impl {
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state{XXH3_createState()};
};

Checksum128::Checksum128() : impl_(std::make_unique<Impl>()) {
  if (!impl_->state) throw std::bad_alloc();
  XXH3_128bits_reset(impl_->state.get());
}
Checksum128::~Checksum128() = default;

void Checksum128::update(std::span<const std::byte> bytes) {
  XXH3_128bits_update(impl_->state.get(), bytes.data(), bytes.size());
}

std::string Checksum128::hex() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(impl_->state.get()));
  std::string text;
  for (const unsigned char byte : canonical.digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

}  // namespace brigade
