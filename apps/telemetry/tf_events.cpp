// SPDX-License-Identifier: MIT
// apps/telemetry/tf_events.cpp - bytes of TFRecord and of protobuf's wire format: a field is a key (number and wire
// type), then its value; a message within a message is a length and its bytes.
#include "apps/telemetry/tf_events.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "apps/telemetry/crc32c.h"
#include "core/check.h"

namespace brigade::telemetry {
namespace {

static_assert(std::endian::native == std::endian::little, "both formats store the lowest byte first");

template <class T>
void append_raw(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

// A protobuf message under construction.
class Message {
 public:
  void add(int field, double value) { key(field, kFixed64), append_raw(bytes_, value); }
  void add(int field, float value) { key(field, kFixed32), append_raw(bytes_, value); }
  void add(int field, std::int64_t value) { key(field, kVarint), varint(static_cast<std::uint64_t>(value)); }
  void add(int field, std::string_view value) {
    key(field, kLength);
    varint(value.size());
    bytes_ += value;
  }
  void add(int field, const Message& value) { add(field, std::string_view(value.bytes_)); }
  void add(int field, std::span<const double> values) {  // Packed.
    std::string packed;
    for (const double value : values) append_raw(packed, value);
    add(field, std::string_view(packed));
  }
  const std::string& bytes() const { return bytes_; }

 private:
  enum Wire { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };
  void key(int field, Wire wire) { varint(static_cast<std::uint64_t>(field << 3 | wire)); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

// Field numbers of Event, Summary, Summary.Value and HistogramProto.
enum EventField { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5 };
enum SummaryField { kValue = 1 };
enum ValueField { kTag = 1, kSimpleValue = 2, kHisto = 5 };
enum HistogramField { kMin = 1, kMax = 2, kNum = 3, kSum = 4, kSumSquares = 5, kLimits = 6, kCounts = 7 };

Message event(double wall_time, std::int64_t step) {
  Message message;
  message.add(kWallTime, wall_time);
  message.add(kStep, step);
  return message;
}

}  // namespace

std::string tf_record(std::string_view data) {
  std::string out;
  append_raw(out, static_cast<std::uint64_t>(data.size()));
  append_raw(out, masked_crc32c(std::string_view(out)));
  out += data;
  append_raw(out, masked_crc32c(data));
  return out;
}

std::string version_record(double wall_time) {
  Message message;
  message.add(kWallTime, wall_time);
  message.add(kFileVersion, std::string_view("brain.Event:2"));
  return tf_record(message.bytes());
}

std::string scalars_record(double wall_time, std::int64_t step, std::span<const Scalar> scalars) {
  Message summary;
  for (const Scalar& scalar : scalars) {
    Message value;
    value.add(kTag, scalar.tag);
    value.add(kSimpleValue, static_cast<float>(scalar.value));
    summary.add(kValue, value);
  }
  Message message = event(wall_time, step);
  message.add(kSummary, summary);
  return tf_record(message.bytes());
}

std::string histogram_record(double wall_time, std::int64_t step, std::string_view tag,
                             std::span<const double> values) {
  BRIGADE_CHECK(!values.empty(), "histogram ", tag, ": needs at least one value");
  constexpr std::size_t kBuckets = 30;
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const double width = (*high - *low) / kBuckets;
  // A bucket reaches up to its limit. The last limit lies above all values, rounding or not.
  std::vector<double> limits, counts(width > 0 ? kBuckets : 1);
  for (std::size_t i = 1; i < counts.size(); ++i) limits.push_back(*low + static_cast<double>(i) * width);
  limits.push_back(*high + std::max(std::abs(*high) * 1e-12, 1e-300));
  double sum = 0, squares = 0;
  for (const double value : values) {
    const auto at = std::upper_bound(limits.begin(), limits.end(), value);
    counts[std::min<std::size_t>(static_cast<std::size_t>(at - limits.begin()), counts.size() - 1)] += 1;
    sum += value;
    squares += value * value;
  }
  Message histogram;
  histogram.add(kMin, *low);
  histogram.add(kMax, *high);
  histogram.add(kNum, static_cast<double>(values.size()));
  histogram.add(kSum, sum);
  histogram.add(kSumSquares, squares);
  histogram.add(kLimits, limits);
  histogram.add(kCounts, counts);
  Message value, summary, message = event(wall_time, step);
  value.add(kTag, tag);
  value.add(kHisto, histogram);
  summary.add(kValue, value);
  message.add(kSummary, summary);
  return tf_record(message.bytes());
}

std::string event_file_name(double wall_time) {
  char host[256] = {};
  if (gethostname(host, sizeof host - 1) != 0 || host[0] == '\0') std::strcpy(host, "host");
  return str("events.out.tfevents.", static_cast<std::int64_t>(wall_time), ".", host, ".", getpid(), ".0");
}

}  // namespace brigade::telemetry
