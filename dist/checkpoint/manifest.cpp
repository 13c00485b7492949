// SPDX-License-Identifier: MIT
// dist/checkpoint/manifest.cpp - strict both ways: a manifest decides which bytes are trusted.
#include "dist/checkpoint/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/check.h"
#include "core/one_line.h"

namespace brigade::dist {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "brigade checkpoint 1";
constexpr int kMaxDepth = 16;
constexpr std::size_t kMaxText = std::size_t{16} << 20;  // A plan, the largest part, may have 8.

Json parse(const std::string& text) {
  BRIGADE_CHECK(text.size() <= kMaxText, "manifest: must be under ", kMaxText >> 20, " MiB");
  std::vector<std::set<std::string>> keys;  // Of the objects that are open.
  const auto guard = [&](int depth, Json::parse_event_t event, Json& parsed) {
    BRIGADE_CHECK(depth <= kMaxDepth, "manifest: nested deeper than ", kMaxDepth, " levels");
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key)
      BRIGADE_CHECK(keys.back().insert(parsed.get<std::string>()).second, "manifest: a key stands twice");
    return true;
  };
  try {
    return Json::parse(text, guard);
  } catch (const Json::exception& error) {
    fail(str("manifest: not JSON: ", one_line(error.what())));
  }
}

const Json& at(const Json& object, const char* key) {
  BRIGADE_CHECK(object.is_object() && object.contains(key), "manifest: \"", key, "\" is missing");
  return object[key];
}

std::int64_t count(const Json& object, const char* key, std::int64_t least, std::int64_t most) {
  const Json& value = at(object, key);
  const bool fits = value.is_number_unsigned() &&
                    value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most) &&
                    value.get<std::int64_t>() >= least;
  BRIGADE_CHECK(fits, "manifest: \"", key, "\" must be a whole number from ", least, " to ", most);
  return value.get<std::int64_t>();
}

std::string text(const Json& object, const char* key) {
  const Json& value = at(object, key);
  BRIGADE_CHECK(value.is_string(), "manifest: \"", key, "\" must be a string");
  return value.get<std::string>();
}

// A plain name of a file in the directory.
bool is_plain(const std::string& name) {
  const auto allowed = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.' || c == '-'; };
  return !name.empty() && name.size() <= 100 && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), allowed);
}

CheckpointFile parse_file(const Json& object) {
  CheckpointFile file{text(object, "name"), {count(object, "bytes", 0, INT64_MAX), text(object, "xxh3_128")}};
  BRIGADE_CHECK(is_plain(file.name), "manifest: a file has no plain name");
  return file;
}

Generator parse_generator(const Json& pair) {
  BRIGADE_CHECK(
      pair.is_array() && pair.size() == 2 && pair[0].is_number_unsigned() && pair[1].is_number_unsigned(),
      "manifest: a generator must be [seed, next stream]");
  return {pair[0].get<std::uint64_t>(), pair[1].get<std::uint64_t>()};
}

}  // namespace

std::string manifest_to_json(const Manifest& m) {
  Json json{{"format", kFormat},
            {"step", m.step},
            {"world_size", m.world_size},
            {"optimizer_steps", m.optimizer_steps},
            {"score", m.score ? Json(*m.score) : Json()},
            {"generators", Json::array()},
            {"run", Json::parse(m.run)},
            {"bucket_plan", Json::parse(m.bucket_plan)},
            {"files", Json::array()}};
  for (const Generator& generator : m.generators)
    json["generators"].push_back(Json::array({generator.seed, generator.next_stream}));
  for (const CheckpointFile& file : m.files)
    json["files"].push_back(
        {{"name", file.name}, {"bytes", file.digest.bytes}, {"xxh3_128", file.digest.xxh3_128}});
  // A run's command may hold bytes that are no UTF-8.
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Manifest manifest_from_json(const std::string& json_text) {
  const Json json = parse(json_text);
  BRIGADE_CHECK(text(json, "format") == kFormat, "manifest: \"format\" must be \"", kFormat, "\"");
  Manifest m{.step = count(json, "step", 0, INT64_MAX),
             .world_size = static_cast<int>(count(json, "world_size", 1, 1 << 20)),
             .optimizer_steps = count(json, "optimizer_steps", 0, INT64_MAX),
             .score = std::nullopt,
             .bucket_plan = at(json, "bucket_plan").dump(),
             .run = at(json, "run").dump()};
  const Json& score = at(json, "score");
  BRIGADE_CHECK(score.is_null() || score.is_number(), "manifest: \"score\" must be a number or null");
  if (score.is_number()) m.score = score.get<double>();
  const Json& generators = at(json, "generators");
  BRIGADE_CHECK(generators.is_array() && std::cmp_equal(generators.size(), m.world_size),
                "manifest: \"generators\" must hold one for each of the ", m.world_size, " ranks");
  for (const Json& pair : generators) m.generators.push_back(parse_generator(pair));
  const Json& files = at(json, "files");
  BRIGADE_CHECK(files.is_array(), "manifest: \"files\" must be a list");
  std::set<std::string> names;
  for (const Json& file : files) {
    m.files.push_back(parse_file(file));
    BRIGADE_CHECK(names.insert(m.files.back().name).second, "manifest: file ", m.files.back().name,
                  " is listed twice");
  }
  return m;
}

}  // namespace brigade::dist
