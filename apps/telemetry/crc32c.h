// SPDX-License-Identifier: MIT
// apps/telemetry/crc32c.h - the check sum of TFRecord files: CRC-32C (Castagnoli, RFC 3720), and its masked form.
#pragma once

#include <cstdint>
#include <string_view>

namespace brigade::telemetry {

std::uint32_t crc32c(std::string_view bytes);
/// TFRecord rotates it and adds a constant, so that the sum of data with sums in it stays sound.
std::uint32_t masked_crc32c(std::string_view bytes);

}  // namespace brigade::telemetry
