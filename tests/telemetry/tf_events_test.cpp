// SPDX-License-Identifier: MIT
// tests/telemetry/tf_events_test.cpp - the bytes of TensorBoard's files, against published check sums and a reader of
// our own; tests/apps/telemetry_test.py reads them with TensorBoard itself.
#include "apps/telemetry/tf_events.h"

#include <cstring>
#include <map>

#include "apps/telemetry/crc32c.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::telemetry;

namespace {

template <class T>
T raw(std::string_view bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// A protobuf message's fields, undecoded: number -> values.
std::multimap<int, std::string> fields(std::string_view message) {
  std::multimap<int, std::string> out;
  std::size_t at = 0;
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(message.at(at++));
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < message.size()) {
    const std::uint64_t key = varint();
    const int wire = static_cast<int>(key & 7), field = static_cast<int>(key >> 3);
    std::size_t length = wire == 1 ? 8 : wire == 5 ? 4 : 0;
    if (wire == 0) {
      out.emplace(field, std::to_string(varint()));
      continue;
    }
    if (wire == 2) length = varint();
    out.emplace(field, std::string(message.substr(at, length)));
    at += length;
  }
  return out;
}

std::string only(const std::multimap<int, std::string>& of, int field) {
  REQUIRE(of.count(field) == 1);
  return of.find(field)->second;
}

std::string payload(const std::string& record) {
  const auto length = raw<std::uint64_t>(record, 0);
  REQUIRE(record.size() == 16 + length);
  return record.substr(12, length);
}

}  // namespace

TEST_CASE("CRC-32C agrees with published values", "[telemetry]") {
  REQUIRE(crc32c("") == 0);
  REQUIRE(crc32c("123456789") == 0xE3069283);            // The check value of its parameters.
  REQUIRE(crc32c(std::string(32, '\0')) == 0x8A9136AA);  // RFC 3720, B.4.
  REQUIRE(crc32c(std::string(32, '\xff')) == 0x62A8AB43);
  REQUIRE(masked_crc32c("") == 0xa282ead8);
}

TEST_CASE("a record is its length, a sum, its data, a sum", "[telemetry]") {
  const std::string record = tf_record("abc");
  REQUIRE(record.size() == 8 + 4 + 3 + 4);
  REQUIRE(raw<std::uint64_t>(record, 0) == 3);
  REQUIRE(raw<std::uint32_t>(record, 8) == masked_crc32c(std::string_view(record).substr(0, 8)));
  REQUIRE(record.substr(12, 3) == "abc");
  REQUIRE(raw<std::uint32_t>(record, 15) == masked_crc32c("abc"));
}

TEST_CASE("scalars come back under their tags, with time and step", "[telemetry]") {
  const Scalar scalars[] = {{"loss", 2.25}, {"lr", 0.5}};
  const auto event = fields(payload(scalars_record(1700000000.5, 300, scalars)));
  REQUIRE(raw<double>(only(event, 1), 0) == 1700000000.5);
  REQUIRE(only(event, 2) == "300");
  const auto summary = fields(only(event, 5));
  REQUIRE(summary.count(1) == 2);
  std::map<std::string, float> values;
  for (const auto& [field, value] : summary) {
    const auto of = fields(value);
    values[only(of, 1)] = raw<float>(only(of, 2), 0);
  }
  REQUIRE(values == std::map<std::string, float>{{"loss", 2.25f}, {"lr", 0.5f}});
}

TEST_CASE("a histogram counts each value once, the largest too", "[telemetry]") {
  std::vector<double> values;
  for (int i = 0; i <= 60; ++i) values.push_back(0.1 * i);
  const auto event = fields(payload(histogram_record(1, 7, "latency/0", values)));
  const auto value = fields(only(fields(only(event, 5)), 1));
  REQUIRE(only(value, 1) == "latency/0");
  const auto histogram = fields(only(value, 5));
  REQUIRE(raw<double>(only(histogram, 1), 0) == 0);
  REQUIRE(raw<double>(only(histogram, 2), 0) == values.back());
  REQUIRE(raw<double>(only(histogram, 3), 0) == 61);
  const std::string limits = only(histogram, 6), counts = only(histogram, 7);
  REQUIRE(limits.size() == counts.size());
  double sum = 0, before = -1;
  for (std::size_t i = 0; i < counts.size(); i += 8) {
    sum += raw<double>(counts, i);
    REQUIRE(raw<double>(limits, i) > before);
    before = raw<double>(limits, i);
  }
  REQUIRE(sum == 61);
  REQUIRE(before >= values.back());
}

TEST_CASE("equal values make a histogram of one bucket, and none is refused", "[telemetry]") {
  const auto event = fields(payload(histogram_record(1, 7, "x", std::vector<double>{3, 3, 3})));
  const auto histogram = fields(only(fields(only(fields(only(event, 5)), 1)), 5));
  REQUIRE(only(histogram, 7).size() == 8);
  REQUIRE(raw<double>(only(histogram, 7), 0) == 3);
  REQUIRE_THROWS_WITH(histogram_record(1, 7, "x", {}),
                      ContainsSubstring("histogram x: needs at least one value"));
}
