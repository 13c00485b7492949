// SPDX-License-Identifier: MIT
// apps/report/text_files.cpp - see the header.
#include "apps/report/text_files.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

#include "core/check.h"

namespace brigade::report {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::ifstream open(const fs::path& file) {
  std::error_code error;
  BRIGADE_CHECK(!fs::is_directory(file, error), "report: ", file.string(),
                ": must be a file; it is a directory");
  const std::uintmax_t bytes = fs::file_size(file, error);
  BRIGADE_CHECK(!error, "report: ", file.string(), ": cannot be read; ", error.message());
  BRIGADE_CHECK(bytes <= kMaxFileBytes, "report: ", file.string(), ": may have ", kMaxFileBytes,
                " bytes; got ", bytes);
  std::ifstream stream(file, std::ios::binary);
  BRIGADE_CHECK(stream.good(), "report: ", file.string(), ": cannot be read; ", std::strerror(errno));
  return stream;
}

}  // namespace

std::string read_file(const fs::path& file) {
  std::ifstream stream = open(file);
  std::string text{std::istreambuf_iterator<char>(stream), {}};
  BRIGADE_CHECK(!stream.bad(), "report: ", file.string(), ": cannot be read; ", std::strerror(errno));
  return text;
}

void for_each_line(const fs::path& file, const std::function<void(const Line&)>& use) {
  const std::string all = read_file(file);
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

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kLongest = 80;
  std::string out(text.substr(0, kLongest));
  std::replace_if(
      out.begin(), out.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return "\"" + out + (text.size() > kLongest ? "…\"" : "\"");
}

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
