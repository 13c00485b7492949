// SPDX-License-Identifier: MIT
// apps/report/text_files.cpp - see the header.
#include "apps/report/text_files.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "core/one_line.h"
#include "core/regular_file.h"

namespace brigade::report {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::string read_text(const fs::path& file, std::int64_t max_bytes) {
  return RegularFile(file, str("report: ", file.string(), ": "), max_bytes).read_rest();
}

}  // namespace

std::string read_document(const fs::path& file) { return read_text(file, kMaxDocumentBytes); }

void for_each_line(const fs::path& file, const std::function<void(const Line&)>& use) {
  const std::string all = read_text(file, kMaxFileBytes);
  std::size_t begin = 0;
  for (std::int64_t number = 1; begin < all.size(); ++number) {
    const std::size_t end = std::min(all.find('\n', begin), all.size());
    const Line line{std::string_view(all).substr(begin, end - begin), str(file.string(), ":", number),
                    end < all.size()};
    BRIGADE_CHECK(line.text.size() <= kMaxLineBytes, "report: ", line.where, ": a line may have ",
                  kMaxLineBytes, " bytes; got ", line.text.size());
    use(line);
    begin = end + 1;
  }
}

std::string in_quotes(std::string_view text) { return str("\"", one_line(text, 80), "\""); }

Json parse_object(std::string_view text, const std::string& where) {
  // Nobody nests deeper than {"buckets": [{"parameters": [; a parser that follows a bomb of brackets gets slow.
  constexpr int kMaxDepth = 16;
  const auto guard = [&](int depth, Json::parse_event_t, const Json&) {
    BRIGADE_CHECK(depth <= kMaxDepth, "report: ", where, ": must not nest deeper than ", kMaxDepth,
                  " levels");
    return true;
  };
  Json json = Json::parse(text, guard, /*allow_exceptions=*/false);
  BRIGADE_CHECK(json.is_object(), "report: ", where, ": must be a JSON object; got ", in_quotes(text));
  return json;
}

const Json* Members::find(const char* key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void Members::refuse(const char* key, const char* rule, const Json* got) const {
  fail(str("report: ", where_, ": \"", key, "\" must be ", rule, "; got ",
           got ? in_quotes(got->dump(-1, ' ', true, Json::error_handler_t::replace)) : "nothing"));
}

double Members::number(const char* key) const {
  const Json* json = find(key);
  if (!json) refuse(key, "a number", nullptr);
  return number(key, 0);
}

double Members::number(const char* key, double fallback) const {
  const Json* json = find(key);
  if (!json) return fallback;
  if (!json->is_number() || !std::isfinite(json->get<double>())) refuse(key, "a number", json);
  return json->get<double>();
}

std::int64_t Members::whole(const char* key) const {
  if (!find(key)) refuse(key, "a whole number from 0 on", nullptr);
  return whole(key, 0);
}

std::int64_t Members::whole(const char* key, std::int64_t fallback) const {
  const Json* json = find(key);
  if (!json) return fallback;
  // Signed first: get<> of a larger number would wrap around.
  if (!json->is_number_integer() || json->get<std::int64_t>() < 0 ||
      (json->is_number_unsigned() && json->get<std::uint64_t>() >> 63 != 0))
    refuse(key, "a whole number from 0 on", json);
  return json->get<std::int64_t>();
}

std::string Members::text(const char* key, const std::string& fallback) const {
  const Json* json = find(key);
  if (!json) return fallback;
  if (!json->is_string()) refuse(key, "text", json);
  return json->get<std::string>();
}

}  // namespace brigade::report
