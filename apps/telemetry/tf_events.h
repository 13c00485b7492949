// SPDX-License-Identifier: MIT
// apps/telemetry/tf_events.h - event files that TensorBoard reads, without TensorFlow: TFRecord framing around a few
// protobuf fields (tensorflow/core/util/event.proto and framework/summary.proto, whose field numbers stand in the
// .cpp). Pure functions make the bytes; run_files.h writes them. Read before: apps/telemetry/crc32c.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace brigade::telemetry {

/// One point of a curve: {"loss", 2.3}.
struct Scalar {
  std::string_view tag;
  double value = 0;
};

/// {length, its sum, data, its sum}: one record of a TFRecord file.
std::string tf_record(std::string_view data);

/// The record that each event file begins with.
std::string version_record(double wall_time);
/// All scalars of one step in one record.
std::string scalars_record(double wall_time, std::int64_t step, std::span<const Scalar> scalars);
/// `values` (at least one, finite) in buckets of equal width between the smallest and the largest.
std::string histogram_record(double wall_time, std::int64_t step, std::string_view tag,
                             std::span<const double> values);

/// "events.out.tfevents.1700000000.host.1234.0": the name by which TensorBoard finds the file.
std::string event_file_name(double wall_time);

}  // namespace brigade::telemetry
