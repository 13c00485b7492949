// SPDX-License-Identifier: MIT
// tests/core/sha256_test.cpp - FIPS 180-4 answers, and fingerprints that do not depend on strides.
#include "core/sha256.h"

#include <string>
#include <string_view>

#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;

namespace {

std::string hash(std::string_view text) {
  Sha256 sha;
  sha.update(std::as_bytes(std::span(text)));
  return sha.hex();
}

std::string hash(const Tensor& t) {
  Sha256 sha;
  sha.update(t);
  return sha.hex();
}

}  // namespace

TEST_CASE("sha256 gives the published answers", "[core][sha256]") {
  REQUIRE(hash("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  REQUIRE(hash("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  REQUIRE(hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST_CASE("sha256 of pieces is the sha256 of the whole", "[core][sha256]") {
  Sha256 sha;
  for (char c : std::string_view("abc")) sha.update(std::as_bytes(std::span(&c, 1)));
  REQUIRE(sha.hex() == hash("abc"));
}

TEST_CASE("a tensor's fingerprint depends on its elements and not on its strides", "[core][sha256]") {
  for (DType dtype : kAllDTypes) {
    CAPTURE(name(dtype));
    const Tensor rows = test::random({2, 3, 4, 5}, 1, dtype);
    const Tensor last = test::random({2, 3, 4, 5}, 1, dtype, MemoryFormat::channels_last);
    const auto bytes = static_cast<std::size_t>(rows.bytes());
    REQUIRE(hash(rows) == hash(std::string_view(reinterpret_cast<const char*>(rows.raw()), bytes)));
    REQUIRE(hash(last) == hash(rows));
    REQUIRE_FALSE(hash(test::random({2, 3, 4, 5}, 2, dtype)) == hash(rows));
  }
}
