// SPDX-License-Identifier: MIT
// data/find_data.cpp - the places, in order.
#include "data/find_data.h"

#include <cstdlib>

namespace brigade::data {
namespace {

namespace fs = std::filesystem;

// The XDG base directory specification: unset, empty and relative values do not count.
std::optional<fs::path> absolute_from_environment(const char* variable) {
  const char* value = std::getenv(variable);
  if (value == nullptr || !fs::path(value).is_absolute()) return std::nullopt;
  return fs::path(value);
}

bool holds_data(const fs::path& directory, CifarKind kind) {
  std::error_code ignored;
  const char* test_file = kind == CifarKind::cifar10 ? "test_batch.bin" : "test.bin";
  return fs::is_directory(directory / folder_name(kind), ignored) ||
         fs::exists(directory / test_file, ignored);
}

}  // namespace

std::optional<fs::path> cache_directory() {
  if (const auto cache = absolute_from_environment("XDG_CACHE_HOME")) return *cache / "brigade";
  if (const auto home = absolute_from_environment("HOME")) return *home / ".cache" / "brigade";
  return std::nullopt;
}

DataSearch locate(const std::optional<fs::path>& data_flag, CifarKind kind) {
  DataSearch search;
  if (data_flag) {
    search.directory = data_flag;
    search.looked_at.push_back(str("--data ", data_flag->string()));
    return search;
  }
  const auto try_place = [&](const char* label, const fs::path& place) {
    search.looked_at.push_back(str(label, place.string()));
    if (!search.directory && holds_data(place, kind)) search.directory = place;
  };
  const char* variable = std::getenv("BRIGADE_DATA");
  if (variable != nullptr && *variable != '\0') try_place("$BRIGADE_DATA ", variable);
  if (search.directory) return search;
  if (const auto cache = cache_directory()) try_place("", *cache);
  return search;
}

}  // namespace brigade::data
