// SPDX-License-Identifier: MIT
// apps/telemetry/gzip.h - text as a gzip file.
#pragma once

#include <string>
#include <string_view>

namespace brigade::telemetry {

/// The bytes of a .gz file of `text`.
std::string gzip(std::string_view text);

}  // namespace brigade::telemetry
