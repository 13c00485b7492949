// SPDX-License-Identifier: MIT
// tests/telemetry/profile_test.cpp - profile.json says what a profile says, and nothing else passes for one.
#include "apps/telemetry/profile.h"

#include <nlohmann/json.hpp>

#include "dist/plan_makers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::telemetry;

namespace {

Profile sample() {
  Profile p;
  p.model = "mlp";
  p.strategy = "bucketed";
  p.plan = "size";
  p.threads = 2;
  p.cores = 4;
  p.host_ranks = 3;
  dist::StepProfile& s = p.step;
  s.ranks = 3;
  s.images = 16;
  s.algorithm = "ring";
  s.link = dist::Link{50e-6, 1.25e8};
  s.trailing_bytes = 8;
  s.parameters = {{"a", 4000, DType::f32, 2}, {"b", 40, DType::f32, 1}};
  s.ready_s = {0.03, 0.01};
  s.before_s = 0.01;
  s.backward_s = 0.03;
  s.after_s = 0.002;
  s.spread = 0.015;
  s.plan = dist::plan_per_parameter(s.parameters, {1, 0});
  s.collectives = {{40, 1e-4}, {4000, 2e-4}, {128, 1e-4}};
  s.gap_s = 1e-5;
  s.steps = 7;
  s.step_s = 0.045;
  s.communication_s = 3e-4;
  s.exposed_s = 2e-4;
  return p;
}

}  // namespace

TEST_CASE("a profile survives its file, to the last bit", "[telemetry][profile]") {
  for (const bool modelled : {true, false}) {
    Profile p = sample();
    if (!modelled) p.step.link.reset();
    const std::string text = profile_to_json(p);
    const Profile again = profile_from_json(text, "here");
    REQUIRE(profile_to_json(again) == text);
    REQUIRE(again.step.link == p.step.link);
    REQUIRE(again.step.ready_s == p.step.ready_s);
    REQUIRE(again.step.plan == p.step.plan);
    REQUIRE(again.step.step_s == p.step.step_s);
    REQUIRE(again.host_ranks == 3);
    REQUIRE(again.load() == 1.5);  // Six threads on four cores.
  }
}

TEST_CASE("what is no profile is refused by place and rule", "[telemetry][profile][error]") {
  const auto refuses = [](const std::string& text, const char* why) {
    REQUIRE_THROWS_WITH(profile_from_json(text, "D/profile.json"),
                        ContainsSubstring(why) && ContainsSubstring("D/profile.json"));
  };
  refuses("", "must be a JSON object");
  refuses("[]", "must be a JSON object");
  refuses("{}", "must have \"model\"");
  const auto with = [](const char* key, const nlohmann::ordered_json& value) {
    auto json = nlohmann::ordered_json::parse(profile_to_json(sample()));
    json[key] = value;
    return json.dump();
  };
  refuses(with("ranks", 0), "\"ranks\" must be at least 1");
  refuses(with("ranks", 1.5), "\"ranks\" must be a whole number");
  refuses(with("images", -1), "\"images\" must be a number of at least 0");
  refuses(with("model", 3), "\"model\" must be text");
  refuses(with("step_s", 0), "must be positive");
  refuses(with("backward_s", "fast"), "\"backward_s\" must be a number");
  refuses(with("parameters", 3), "\"parameters\" must be a list");
  refuses(with("parameters", nlohmann::ordered_json::array()), "must not be empty");
  refuses(with("parameters", {{{"name", "a"}, {"bytes", 4}, {"dtype", "i8"}, {"dims", 1}, {"ready_s", 0}}}),
          "\"dtype\" must be f32");
  refuses(with("link", {{"latency_s", 0}, {"bytes_per_s", 0}}), "\"bytes_per_s\" must be positive");
  // Of another model.
  REQUIRE_THROWS_WITH(profile_from_json(with("bucket_plan", {{"rule", "x"}, {"buckets", nullptr}}), "D"),
                      ContainsSubstring("plan:"));
}

TEST_CASE("a directory without a profile is named", "[telemetry][profile][error]") {
  const test::TempDir folder;
  REQUIRE_THROWS_WITH(read_profile(folder.path()), ContainsSubstring("profile.json is not there"));
  write_profile(folder.path(), sample());
  REQUIRE(profile_to_json(read_profile(folder.path())) == profile_to_json(sample()));
}

TEST_CASE("a profile that is nested without end, or whose sizes have no sum, is refused",
          "[telemetry][profile][error]") {
  const std::string text = profile_to_json(sample());
  CHECK_THROWS_WITH(profile_from_json(std::string(1'000'000, '['), "here"),
                    "profile: here: must not nest deeper than 6 levels");
  CHECK_THROWS_WITH(profile_from_json(std::string((8 << 20) + 1, ' '), "here"),
                    "profile: here: may have 8388608 bytes; got 8388609");
  nlohmann::json many = nlohmann::json::parse(text);
  const nlohmann::json huge = {
      {"name", "x"}, {"bytes", 8'000'000'000'000'000}, {"dtype", "f32"}, {"dims", 1}, {"ready_s", 0}};
  many["parameters"] = {huge, huge};
  CHECK_THROWS_WITH(profile_from_json(many.dump(), "here"),
                    ContainsSubstring("must come to at most 9007199254740992"));
}
