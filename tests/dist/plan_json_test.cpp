// SPDX-License-Identifier: MIT
// tests/dist/plan_json_test.cpp - plans as files: what is written is read again, anything else is refused in one line.
#include "core/rng.h"
#include "dist/plan_makers.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::dist;

namespace {

const std::vector<ParameterInfo> kModel{
    {"conv.weight", 400, DType::f32, 4}, {"fc.weight", 2000, DType::f32, 2}, {"fc.bias", 20, DType::f32, 1}};

// What plan_from_json says about `text`; always one line that starts with "plan:".
std::string refusal(const std::string& text) {
  try {
    plan_from_json(text, kModel);
  } catch (const Error& error) {
    const std::string what = error.what();
    CHECK(what.starts_with("plan:"));
    CHECK(what.find('\n') == std::string::npos);
    CHECK(what.size() < 500);
    return what;
  }
  return "nothing";
}

// A plan file with one bucket, of which `from` is replaced by `to`.
std::string changed(const std::string& from, const std::string& to) {
  std::string text = R"({"rule": "mine", "buckets": [{"bytes": 2420, "dtype": "f32",
                         "parameters": ["fc.bias", "fc.weight", "conv.weight"]}]})";
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("a plan survives JSON, also one with parts and one of mixed dtypes", "[dist][plan][json]") {
  auto mixed = kModel;
  mixed[1].dtype = DType::bf16;
  for (const auto& model : {kModel, mixed})
    for (const Oversize oversize : {Oversize::alone, Oversize::split})
      for (const double cap : {1.0, 100.0, 512.0, 2020.0, 1e9}) {
        const BucketPlan plan =
            plan_by_size(model, make_order("reverse", model),
                         {.bytes = cap, .first_bytes = cap, .list = {cap, 3 * cap}}, oversize);
        REQUIRE(plan_from_json(plan_to_json(plan, model), model) == plan);
      }
}

TEST_CASE("the file of a split plan is a golden text", "[dist][plan][json]") {
  const BucketPlan plan = plan_by_size(kModel, make_order("reverse", kModel),
                                       {.bytes = 1024, .first_bytes = 1024}, Oversize::split);
  auto text = plan_to_json(plan, kModel);
  std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
  REQUIRE(text == R"({"rule":"sizecap0.0009766MiB,first0.0009766MiB,split","buckets":[)"
                  R"({"bytes":20,"dtype":"f32","parameters":["fc.bias"]},)"
                  R"({"bytes":1024,"dtype":"f32","parameters":["fc.weight"],"elements":[0,256]},)"
                  R"({"bytes":976,"dtype":"f32","parameters":["fc.weight"],"elements":[256,500]},)"
                  R"({"bytes":400,"dtype":"f32","parameters":["conv.weight"]}]})");
}

TEST_CASE("text that is not a plan is refused in one line that says why", "[dist][plan][json][error]") {
  REQUIRE(refusal(changed("mine", "mine")) == "nothing");
  for (const std::string text : {"", "{", "nonsense", "\xff\xfe", "{\"rule\"\n:\n\"a\"\n"})
    CHECK_THAT(refusal(text), ContainsSubstring("not a bucket plan"));
  CHECK_THAT(refusal("[1]"), ContainsSubstring("the file must be an object; got array"));
  CHECK_THAT(refusal("null"), ContainsSubstring("got null"));
  CHECK_THAT(refusal(R"({"rule": "a"})"), ContainsSubstring("the file lacks \"buckets\""));
  CHECK_THAT(refusal(R"({"buckets": []})"), ContainsSubstring("the file lacks \"rule\""));
  CHECK_THAT(refusal(R"({"rule": 7, "buckets": []})"), ContainsSubstring("\"rule\" must be a string"));
  CHECK_THAT(refusal(R"({"rule": "a\nb", "buckets": []})"),
             ContainsSubstring("must be one line; got \"a?b\""));
  CHECK_THAT(refusal(R"({"rule": "a", "buckets": {}})"), ContainsSubstring("\"buckets\" must be an array"));
  CHECK_THAT(refusal(R"({"rule": "a", "buckets": [3]})"), ContainsSubstring("bucket 0 must be an object"));
  CHECK_THAT(refusal(R"({"rule": "a", "buckets": []})"), ContainsSubstring("needs all 3 parameters; got 0"));
}

TEST_CASE("keys that are unknown, missing or double are refused by name", "[dist][plan][json][error]") {
  CHECK_THAT(refusal(changed("\"bytes\"", "\"byte\"")),
             ContainsSubstring("bucket 0 has an unknown key \"byte\""));
  CHECK_THAT(refusal(changed("\"rule\"", "\"Rule\"")),
             ContainsSubstring("the file has an unknown key \"Rule\""));
  CHECK_THAT(refusal(changed("\"dtype\": \"f32\",", "")), ContainsSubstring("bucket 0 lacks \"dtype\""));
  CHECK_THAT(refusal(changed("\"bytes\": 2420", "\"bytes\": 1, \"bytes\": 2420")),
             ContainsSubstring("key \"bytes\" stands twice"));
  CHECK_THAT(refusal(changed("]}]}", "]}], \"rule\": \"b\"}")),
             ContainsSubstring("key \"rule\" stands twice"));
}

TEST_CASE("sizes that are no sizes and names the model lacks are refused", "[dist][plan][json][error]") {
  for (const char* bad :
       {"-1", "2420.0", "1.5", "1e300", "9223372036854775808", "\"2420\"", "null", "[2420]"})
    CHECK_THAT(refusal(changed("2420", bad)),
               ContainsSubstring("\"bytes\" of bucket 0 must be a whole number from 0 on; got"));
  CHECK_THAT(refusal(changed("2420", "2421")), ContainsSubstring("holds 2420 bytes; it says 2421"));
  CHECK_THAT(refusal(changed("\"f32\"", "\"f31\"")), ContainsSubstring("unknown dtype \"f31\""));
  CHECK_THAT(refusal(changed("\"f32\"", "\"f64\"")),
             ContainsSubstring("bucket 0 is f64; \"fc.bias\" is f32"));
  CHECK_THAT(refusal(changed("fc.bias", "fc.bia\\ns")), ContainsSubstring("no parameter \"fc.bia?s\""));
  CHECK_THAT(refusal(changed("fc.bias", std::string(100000, 'x'))), ContainsSubstring("no parameter \"xxx"));
  CHECK_THAT(refusal(changed("fc.bias", "fc.weight")),
             ContainsSubstring("parameter \"fc.weight\" is in it twice"));
  CHECK_THAT(refusal(changed("\"fc.bias\"", "\"fc.bias\", \"fc.bias\"")),
             ContainsSubstring("is one too many"));
  CHECK_THAT(refusal(changed("\"fc.bias\",", "")), ContainsSubstring("needs all 3 parameters; got 2"));
  CHECK_THAT(refusal(changed("\"fc.bias\"", "7")), ContainsSubstring("must be a string; got number"));
}

TEST_CASE("parts a file gets wrong are refused", "[dist][plan][json][error]") {
  const std::string part = R"(]}, {"bytes": 64, "dtype": "f32", "parameters": ["conv.weight"], "elements": )";
  CHECK_THAT(refusal(changed("]}]}", part + "[0]}]}")),
             ContainsSubstring("must be an array of begin and end"));
  CHECK_THAT(refusal(changed("]}]}", part + "[16, 0]}]}")), ContainsSubstring("must end after its begin"));
  CHECK_THAT(refusal(changed("]}]}", part + "[-16, 0]}]}")), ContainsSubstring("must be a whole number"));
  // conv.weight is whole in bucket 0 already.
  CHECK_THAT(refusal(changed("]}]}", part + "[0, 16]}]}")), ContainsSubstring("is one too many"));
  CHECK_THAT(refusal(changed("]}]}", part + "[16, 32]}]}")),
             ContainsSubstring("bucket 1 must start at position 3"));
}

TEST_CASE("whatever happens to a file's bytes, it is the plan or refused in one line",
          "[dist][plan][json][error]") {
  const std::string whole = plan_to_json(
      plan_by_size(kModel, make_order("reverse", kModel), {.bytes = 512}, Oversize::split), kModel);
  Generator generator{.seed = 3};
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = whole;
    const std::uint64_t stream = generator.take();
    for (std::uint64_t i = 0; i <= stream % 3; ++i) {
      const auto words = philox(generator.seed, stream, i);
      const std::size_t at = words[0] % text.size();
      if (words[1] % 3 == 0) text.erase(at, 1 + words[2] % 20);
      if (words[1] % 3 == 1) text[at] = static_cast<char>(words[2]);
      if (words[1] % 3 == 2) text.insert(at, text.substr(words[2] % text.size(), words[3] % 40));
    }
    refused += refusal(text) != "nothing";
  }
  REQUIRE(refused > 2000);  // Some changes only touch the rule's text or white space.
  REQUIRE(refused < 3000);
}

TEST_CASE("a hostile file ends in an error before it fills the memory", "[dist][plan][json][error]") {
  const std::size_t many = 1'000'000;
  CHECK_THAT(refusal(std::string(many, '[')), ContainsSubstring("nested deeper than 4 levels"));
  std::string objects;
  for (std::size_t i = 0; i < many; ++i) objects += "{\"a\":";
  CHECK_THAT(refusal(objects), ContainsSubstring("nested deeper than 4 levels"));
  std::string numbers = "[";
  for (std::size_t i = 0; i < many; ++i) numbers += "1,";
  CHECK_THAT(refusal(numbers), ContainsSubstring("more entries than any"));
  std::string empties = "[";
  for (std::size_t i = 0; i < many; ++i) empties += "[],";
  CHECK_THAT(refusal(empties), ContainsSubstring("more entries than any"));
  CHECK_THAT(refusal(std::string((std::size_t{64} << 20) + 1, ' ')),
             ContainsSubstring("may have 8388608 bytes"));
}
