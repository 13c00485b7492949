// SPDX-License-Identifier: MIT
// apps/bench/tune.h - measures every convolution algorithm on the shapes of ResNet-18 and writes the table from which
// kernels/cpu/conv_algorithms.h chooses. Read before: apps/bench/op_cases.h.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace brigade::apps {

struct TuneOptions {
  std::string path;  ///< Of the source file written: kernels/cpu/conv_table.cpp.
  std::vector<std::int64_t> images{16, 32, 64, 128};
  int rounds = 7;  ///< Of all algorithms of a shape, one after the other; the fastest call of each counts.
};

/// Both stems, f32 and bf16, on images of 32 x 32, on the threads in use. `line` hears the progress. Throws Error if
/// the file cannot be written. Minutes.
void tune_convolutions(const TuneOptions& options, const std::function<void(const std::string&)>& line);

}  // namespace brigade::apps
