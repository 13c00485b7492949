// SPDX-License-Identifier: MIT
// apps/report/text_files.h - reading files that a killed run, or a stranger, has left: line by line, within limits, and
// with errors that name file, line and rule. Read next: apps/report/recorded_run.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace brigade::report {

/// No file of a run is near these; what is larger is no file of ours, and would fill the memory: as values JSON takes
/// up to 25 times its text.
inline constexpr std::int64_t kMaxFileBytes = std::int64_t{256} << 20,
                              kMaxDocumentBytes = std::int64_t{8} << 20;
inline constexpr std::size_t kMaxLineBytes = std::size_t{1} << 16;

/// A line, and where it stands.
struct Line {
  std::string_view text;  ///< Without its end; valid during the call only.
  std::string where;      ///< "run/metrics.jsonl:12"
  bool ended = true;      ///< False: the file stops before the line does, as after kill -9.
};

/// Calls `use` for every line. Error if the file cannot be read or breaks the limits above.
void for_each_line(const std::filesystem::path& file, const std::function<void(const Line&)>& use);

/// All of a file that is parsed as one, of at most kMaxDocumentBytes. Error as above.
std::string read_document(const std::filesystem::path& file);

/// What a file says, fit for one line of an error: control characters as "?", at most 80 characters.
std::string in_quotes(std::string_view text);

/// The JSON object that `text` holds; Error naming `where` for anything else.
nlohmann::json parse_object(std::string_view text, const std::string& where);

/// The members of an object of JSON, by type. A member of another type is an Error that names where it stands; one that
/// is missing is one too, unless a fallback is given.
class Members {
 public:
  Members(const nlohmann::json& object, std::string where) : object_(object), where_(std::move(where)) {}

  bool has(const char* key) const { return object_.contains(key); }
  double number(const char* key) const;
  double number(const char* key, double fallback) const;  ///< null is the fallback too.
  std::int64_t whole(const char* key) const;              ///< From 0 on.
  std::int64_t whole(const char* key, std::int64_t fallback) const;
  std::string text(const char* key, const std::string& fallback = "") const;

 private:
  const nlohmann::json* find(const char* key) const;  ///< Null: missing, or null in the file.
  [[noreturn]] void refuse(const char* key, const char* rule, const nlohmann::json* got) const;

  const nlohmann::json& object_;
  std::string where_;
};

}  // namespace brigade::report
