// SPDX-License-Identifier: MIT
// apps/whatif/efficiency_plot.h - scaling efficiency over the number of ranks, as a picture.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace brigade::apps {

struct Curve {
  std::string label;
  std::vector<std::pair<int, double>> points;  ///< (ranks, efficiency from 0 to 1), ranks ascending.
};

/// SVG. The axis of ranks is logarithmic. At most kMaxCurves, the first ones, which the picture then says.
inline constexpr std::size_t kMaxCurves = 8;
std::string efficiency_svg(const std::vector<Curve>& curves, const std::string& title);

}  // namespace brigade::apps
