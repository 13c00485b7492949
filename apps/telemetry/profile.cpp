// SPDX-License-Identifier: MIT
// apps/telemetry/profile.cpp - a profile as JSON, seconds and bytes throughout:
//   {"model": "resnet18", "strategy": "bucketed", …, "link": {"latency_s": 5e-05, "bytes_per_s": 1.25e8} or null,
//    "parameters": [{"name": "conv1.weight", "bytes": 6912, "dtype": "f32", "dims": 4, "ready_s": 0.081}, …],
//    "bucket_plan": as in bucket_plan.json,
//    "collectives": [{"bytes": 20520, "seconds": 0.0004}, …], the buckets and then the roll call, …}
#include "apps/telemetry/profile.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "apps/telemetry/run_files.h"
#include "core/parallel.h"
#include "core/regular_file.h"
#include "dist/launch.h"

namespace brigade::telemetry {
namespace {

using Json = nlohmann::ordered_json;  // Written…
using Map = nlohmann::json;           // … and read: a key of the other costs a look at all before it.

constexpr std::int64_t kMaxBytes = 8 << 20;  // A profile of a thousand parameters has 200 kB.

// Reads members, and complains with the place.
class Reader {
 public:
  Reader(const Map& json, std::string where) : json_(json), where_(std::move(where)) {
    require(json_.is_object(), "must be a JSON object");
  }

  void require(bool condition, const std::string& rule) const {
    BRIGADE_CHECK(condition, "profile: ", where_, ": ", rule);
  }
  const Map& at(const char* key) const {
    require(json_.contains(key), str("must have \"", key, "\""));
    return json_[key];
  }
  double number(const char* key) const {
    const Map& value = at(key);
    require(value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() >= 0,
            str("\"", key, "\" must be a number of at least 0"));
    return value.get<double>();
  }
  std::int64_t whole(const char* key) const {
    const double value = number(key);  // Of what is a size none comes near 2^53.
    require(value == std::floor(value) && value < 9e15, str("\"", key, "\" must be a whole number"));
    return static_cast<std::int64_t>(value);
  }
  int count(const char* key) const {
    const std::int64_t value = whole(key);
    require(value >= 1 && value <= std::numeric_limits<std::int32_t>::max(),
            str("\"", key, "\" must be at least 1"));
    return static_cast<int>(value);
  }
  std::string text(const char* key) const {
    require(at(key).is_string(), str("\"", key, "\" must be text"));
    return at(key).get<std::string>();
  }
  const Map& list(const char* key) const {
    require(at(key).is_array(), str("\"", key, "\" must be a list"));
    return at(key);
  }

 private:
  const Map& json_;
  std::string where_;
};

Map parse(const std::string& text, const std::string& where) {
  constexpr int kMaxDepth = 6;  // {"bucket_plan": {"buckets": [{"parameters": [
  BRIGADE_CHECK(text.size() <= kMaxBytes, "profile: ", where, ": may have ", kMaxBytes, " bytes; got ",
                text.size());
  const auto guard = [&](int depth, Map::parse_event_t, const Map&) {
    // What is nested without end also lets those functions of the library fail that call themselves.
    BRIGADE_CHECK(depth <= kMaxDepth, "profile: ", where, ": must not nest deeper than ", kMaxDepth,
                  " levels");
    return true;
  };
  return Map::parse(text, guard, /*allow_exceptions=*/false);
}

DType dtype_named(const Reader& reader, const std::string& wanted) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
    if (name(dtype) == wanted) return dtype;
  reader.require(false, "\"dtype\" must be f32, f64, f16 or bf16");
  return DType::f32;
}

void read_parameters(const Reader& reader, const std::string& where, dist::StepProfile& step) {
  constexpr std::size_t kMaxParameters = 20'000;  // A planner takes its time.
  constexpr std::int64_t kMaxTotal = std::int64_t{1} << 53;
  std::int64_t total = 0;
  for (const Map& entry : reader.list("parameters")) {
    const Reader p(entry, where + ": parameters");
    step.parameters.push_back({.name = p.text("name"),
                               .bytes = p.whole("bytes"),
                               .dtype = dtype_named(p, p.text("dtype")),
                               .dims = static_cast<int>(p.whole("dims"))});
    step.ready_s.push_back(p.number("ready_s"));
    p.require(step.parameters.size() <= kMaxParameters, str("may be ", kMaxParameters, " at most"));
    total += step.parameters.back().bytes;
    p.require(total <= kMaxTotal, str("all \"bytes\" must come to at most ", kMaxTotal));
  }
  reader.require(!step.parameters.empty(), "\"parameters\" must not be empty");
}

}  // namespace

double Profile::load() const { return std::max(1.0, static_cast<double>(host_ranks) * threads / cores); }

Profile take_profile(const dist::Ddp& ddp, const ProfileFacts& facts) {
  const int ranks = ddp.group().size();
  Profile out{.step = dist::make_profile(ddp.ledger(), ddp.plan(), ddp.parameter_infos(), ranks),
              .model = facts.model,
              .strategy = facts.strategy,
              .plan = facts.plan,
              .threads = facts.threads,
              .cores = available_cores()};
  out.host_ranks = dist::ranks_on_this_host(ranks);
  out.step.images = facts.images;
  out.step.algorithm = facts.algorithm;
  out.step.trailing_bytes = facts.trailing_bytes;
  if (!facts.network) return out;
  dist::Link link = facts.network->at(ddp.ledger().last().step);
  double slowest = 1;
  for (const auto& [rank, fraction] : facts.network->slow_ranks)
    if (rank < ranks) slowest = std::min(slowest, fraction);
  link.bytes_per_s *= slowest;
  out.step.link = link;
  return out;
}

std::string profile_to_json(const Profile& profile) {
  const dist::StepProfile& s = profile.step;
  Json json{{"model", profile.model},
            {"strategy", profile.strategy},
            {"plan", profile.plan},
            {"ranks", s.ranks},
            {"threads", profile.threads},
            {"cores", profile.cores},
            {"host_ranks", profile.host_ranks},
            {"images", s.images},
            {"algorithm", s.algorithm},
            {"link",
             s.link ? Json{{"latency_s", s.link->latency_s}, {"bytes_per_s", s.link->bytes_per_s}} : Json()},
            {"trailing_bytes", s.trailing_bytes},
            {"steps", s.steps},
            {"step_s", s.step_s},
            {"communication_s", s.communication_s},
            {"exposed_s", s.exposed_s},
            {"before_s", s.before_s},
            {"backward_s", s.backward_s},
            {"after_s", s.after_s},
            {"spread", s.spread},
            {"gap_s", s.gap_s}};
  json["collectives"] = Json::array();
  for (const dist::CostSample& c : s.collectives)
    json["collectives"].push_back({{"bytes", c.bytes}, {"seconds", c.seconds}});
  json["parameters"] = Json::array();
  for (std::size_t i = 0; i < s.parameters.size(); ++i) {
    const dist::ParameterInfo& p = s.parameters[i];
    json["parameters"].push_back({{"name", p.name},
                                  {"bytes", p.bytes},
                                  {"dtype", std::string(name(p.dtype))},
                                  {"dims", p.dims},
                                  {"ready_s", s.ready_s[i]}});
  }
  json["bucket_plan"] = Json::parse(dist::plan_to_json(s.plan, s.parameters));
  return json.dump(1) + "\n";
}

Profile profile_from_json(const std::string& text, const std::string& where) {
  const Map json = parse(text, where);
  const Reader reader(json, where);
  Profile out;
  out.model = reader.text("model");
  out.strategy = reader.text("strategy");
  out.plan = reader.text("plan");
  out.threads = reader.count("threads");
  out.cores = reader.count("cores");
  out.host_ranks = reader.count("host_ranks");
  dist::StepProfile& s = out.step;
  s.ranks = reader.count("ranks");
  s.images = reader.count("images");
  s.algorithm = reader.text("algorithm");
  if (!reader.at("link").is_null()) {
    const Reader link(reader.at("link"), where + ": link");
    s.link = dist::Link{.latency_s = link.number("latency_s"), .bytes_per_s = link.number("bytes_per_s")};
    link.require(s.link->bytes_per_s > 0, "\"bytes_per_s\" must be positive");
  }
  s.trailing_bytes = reader.whole("trailing_bytes");
  s.steps = static_cast<std::size_t>(reader.whole("steps"));
  for (const auto& [key, value] : {std::pair{"step_s", &s.step_s},
                                   {"communication_s", &s.communication_s},
                                   {"exposed_s", &s.exposed_s},
                                   {"before_s", &s.before_s},
                                   {"backward_s", &s.backward_s},
                                   {"after_s", &s.after_s},
                                   {"spread", &s.spread},
                                   {"gap_s", &s.gap_s}})
    *value = reader.number(key);
  reader.require(s.step_s > 0 && s.backward_s > 0, "\"step_s\" and \"backward_s\" must be positive");
  for (const Map& entry : reader.list("collectives")) {
    const Reader c(entry, where + ": collectives");
    s.collectives.push_back({c.whole("bytes"), c.number("seconds")});
  }
  read_parameters(reader, where, s);
  s.plan = dist::plan_from_json(reader.at("bucket_plan").dump(), s.parameters);
  return out;
}

void write_profile(const std::filesystem::path& directory, const Profile& profile) {
  write_whole(directory / "profile.json", profile_to_json(profile), "--out");
}

Profile read_profile(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "profile.json";
  std::error_code error;
  BRIGADE_CHECK(std::filesystem::exists(path, error), "profile: ", path.string(),
                " is not there; give the directory of a run that ended (train_resnet18 --out)");
  RegularFile file(path, str("profile: ", path.string(), ": "), kMaxBytes);
  return profile_from_json(file.read_rest(), path.string());
}

}  // namespace brigade::telemetry
