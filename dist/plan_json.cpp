// SPDX-License-Identifier: MIT
// dist/plan_json.cpp - plans as files:
//   {"rule": "size cap 4 MiB", "buckets": [
//     {"bytes": 20520, "dtype": "f32", "parameters": ["fc.bias", "fc.weight"]},
//     {"bytes": 4194304, "dtype": "f32", "parameters": ["conv.weight"], "elements": [0, 1048576]}, …]}
// "elements" makes a part: [begin, end). Whoever edits a plan by hand misspells things: every key must be known.
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "core/one_line.h"
#include "dist/bucket_plan.h"

namespace brigade::dist {
namespace {

using Json = nlohmann::json;
using Parameters = std::span<const ParameterInfo>;

constexpr std::size_t kMaxText = std::size_t{8} << 20;  // As values JSON takes up to 25 times its text.
constexpr int kMaxDepth = 4;                            // {"buckets": [{"parameters": [

bool is_control(unsigned char c) { return c < 0x20 || c == 0x7f; }

std::string in_quotes(std::string_view text) { return str("\"", one_line(text, 120), "\""); }

// Watches the parser, so that a hostile file ends in an error before it fills the memory.
class Guard {
 public:
  explicit Guard(Parameters parameters) : entries_left_(64) {
    // Each bucket holds a parameter or a part, and has up to 4 keys, 4 values and 3 brackets beside its parameters.
    // The parameters may come from a file as well: their sum need not fit.
    constexpr auto kMost = static_cast<std::int64_t>(kMaxText);
    for (const ParameterInfo& p : parameters) {
      const std::int64_t parts = 2 + p.bytes / (size_of(p.dtype) * kPartMultiple);
      entries_left_ = std::min(kMost, entries_left_ + 12 * std::min(kMost, parts));
    }
  }

  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    using Event = Json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      BRIGADE_CHECK(depth < kMaxDepth, "plan: not a bucket plan; nested deeper than ", kMaxDepth, " levels");
      keys_.erase(keys_.lower_bound({depth + 1, ""}), keys_.end());  // Of earlier objects at this depth.
    }
    if (event == Event::key)
      BRIGADE_CHECK(keys_.insert({depth, parsed.get<std::string>()}).second, "plan: key ",
                    in_quotes(parsed.get<std::string>()), " stands twice in one object");
    if (event != Event::object_end && event != Event::array_end)
      BRIGADE_CHECK(--entries_left_ >= 0, "plan: not a plan of this model; it has more entries than any");
    return true;
  }

 private:
  std::int64_t entries_left_;
  std::set<std::pair<int, std::string>> keys_;  // Of the open objects, by depth.
};

void check_keys(const Json& object, const std::string& where, std::initializer_list<std::string_view> known) {
  BRIGADE_CHECK(object.is_object(), "plan: ", where, " must be an object; got ", object.type_name());
  for (const auto& [key, value] : object.items())
    BRIGADE_CHECK(std::find(known.begin(), known.end(), key) != known.end(), "plan: ", where,
                  " has an unknown key ", in_quotes(key));
}

const Json& member(const Json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  BRIGADE_CHECK(found != object.end(), "plan: ", where, " lacks \"", key, "\"");
  return *found;
}

std::string text_of(const Json& json, const std::string& where) {
  BRIGADE_CHECK(json.is_string(), "plan: ", where, " must be a string; got ", json.type_name());
  return json.get<std::string>();
}

const Json& array_of(const Json& json, const std::string& where) {
  BRIGADE_CHECK(json.is_array(), "plan: ", where, " must be an array; got ", json.type_name());
  return json;
}

// Whole, not negative, and no larger than fits: get<>() alone would wrap around or cut off.
std::int64_t number_of(const Json& json, const std::string& where) {
  BRIGADE_CHECK(json.is_number_unsigned() &&
                    json.get<std::uint64_t>() <= std::uint64_t{std::numeric_limits<std::int64_t>::max()},
                "plan: ", where, " must be a whole number from 0 on; got ",
                in_quotes(json.is_number() ? json.dump() : json.type_name()));
  return json.get<std::int64_t>();
}

DType dtype_of(const std::string& text) {
  const auto known =
      std::find_if(kAllDTypes.begin(), kAllDTypes.end(), [&](DType d) { return name(d) == text; });
  BRIGADE_CHECK(known != kAllDTypes.end(), "plan: unknown dtype ", in_quotes(text));
  return *known;
}

// Adds the bucket `json` describes. What can be wrong with it as a whole is check_plan's.
void add_bucket(BucketPlan& plan, const Json& json, Parameters parameters,
                const std::unordered_map<std::string, int>& index) {
  const std::string where = str("bucket ", plan.buckets.size());
  check_keys(json, where, {"bytes", "dtype", "parameters", "elements"});
  const auto here = [&](const char* key) { return str("\"", key, "\" of ", where); };

  BucketSpec spec{.range = {static_cast<int>(plan.order.size()), 0},
                  .bytes = number_of(member(json, "bytes", where), here("bytes")),
                  .dtype = dtype_of(text_of(member(json, "dtype", where), here("dtype")))};
  if (const auto elements = json.find("elements"); elements != json.end()) {
    BRIGADE_CHECK(elements->is_array() && elements->size() == 2, "plan: ", here("elements"),
                  " must be an array of begin and end");
    spec.part = {number_of((*elements)[0], here("elements")), number_of((*elements)[1], here("elements"))};
    BRIGADE_CHECK(spec.is_part(), "plan: ", here("elements"), " must end after its begin; got [",
                  spec.part.begin, ", ", spec.part.end, ")");
  }
  for (const Json& entry : array_of(member(json, "parameters", where), here("parameters"))) {
    const std::string named = text_of(entry, here("parameters"));
    const auto found = index.find(named);
    BRIGADE_CHECK(found != index.end(), "plan: the model has no parameter ", in_quotes(named));
    // The second and later parts of a parameter name it again without taking another position.
    const bool continues = spec.part.begin > 0 && !plan.order.empty() && plan.order.back() == found->second;
    if (continues) spec.range.begin = static_cast<int>(plan.order.size()) - 1;
    if (!continues) plan.order.push_back(found->second);
    BRIGADE_CHECK(plan.order.size() <= parameters.size(), "plan: parameter ", in_quotes(named),
                  " is one too many; the model has ", parameters.size());
  }
  spec.range.end = static_cast<int>(plan.order.size());
  plan.buckets.push_back(spec);
}

Json parse(const std::string& text, Parameters parameters) {
  BRIGADE_CHECK(text.size() <= kMaxText, "plan: a file may have ", kMaxText, " bytes; got ", text.size());
  Guard guard(parameters);
  try {
    return Json::parse(text, [&](int depth, Json::parse_event_t event, const Json& parsed) {
      return guard(depth, event, parsed);
    });
  } catch (const Json::exception& error) {
    fail(str("plan: not a bucket plan; ", in_quotes(error.what())));
  }
}

}  // namespace

std::string plan_to_json(const BucketPlan& plan, Parameters parameters) {
  nlohmann::ordered_json json{{"rule", plan.rule}, {"buckets", nlohmann::ordered_json::array()}};
  for (const BucketSpec& bucket : plan.buckets) {
    nlohmann::ordered_json names = nlohmann::ordered_json::array();
    for (int i = bucket.range.begin; i < bucket.range.end; ++i) {
      const int index = plan.order[static_cast<std::size_t>(i)];
      names.push_back(parameters[static_cast<std::size_t>(index)].name);
    }
    nlohmann::ordered_json entry{
        {"bytes", bucket.bytes}, {"dtype", name(bucket.dtype)}, {"parameters", names}};
    if (bucket.is_part()) entry["elements"] = {bucket.part.begin, bucket.part.end};
    json["buckets"].push_back(entry);
  }
  return json.dump(1) + "\n";
}

BucketPlan plan_from_json(const std::string& text, Parameters parameters) {
  const Json json = parse(text, parameters);
  check_keys(json, "the file", {"rule", "buckets"});
  std::unordered_map<std::string, int> index;
  for (std::size_t i = 0; i < parameters.size(); ++i) index[parameters[i].name] = static_cast<int>(i);

  BucketPlan plan;
  plan.rule = text_of(member(json, "rule", "the file"), "\"rule\"");
  BRIGADE_CHECK(std::none_of(plan.rule.begin(), plan.rule.end(), is_control),
                "plan: \"rule\" must be one line; got ", in_quotes(plan.rule));
  for (const Json& bucket : array_of(member(json, "buckets", "the file"), "\"buckets\""))
    add_bucket(plan, bucket, parameters, index);
  check_plan(plan, parameters);
  return plan;
}

}  // namespace brigade::dist
