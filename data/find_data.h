// SPDX-License-Identifier: MIT
// data/find_data.h - where the data set lies when nobody said so. Nothing is downloaded here; that is the job
// of scripts/get_cifar10.sh, which puts it where locate() looks last.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/cifar10.h"

namespace brigade::data {

/// Brigade's cache folder: $XDG_CACHE_HOME/brigade, or ~/.cache/brigade; nothing if
/// neither variable is an absolute path.
std::optional<std::filesystem::path> cache_directory();

struct DataSearch {
  std::optional<std::filesystem::path> directory;  ///< What to give to read_cifar().
  std::vector<std::string> looked_at;              ///< Every place tried, in order, for the message.
};

/// The value of --data if one was given, whatever lies there: read_cifar() then says what is wrong with it,
/// since falling back to other data than the user asked for would be worse. Otherwise the first of
/// $BRIGADE_DATA and cache_directory() that holds the set's folder (or is that folder).
DataSearch locate(const std::optional<std::filesystem::path>& data_flag, CifarKind kind = CifarKind::cifar10);

}  // namespace brigade::data
