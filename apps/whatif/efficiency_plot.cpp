// SPDX-License-Identifier: MIT
// apps/whatif/efficiency_plot.cpp - see the header. Curves differ in colour ("bright", Paul Tol, 2021) and in dashes,
// so that four and four are told apart without colours.
#include "apps/whatif/efficiency_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

namespace brigade::apps {
namespace {

constexpr double kWidth = 960, kLeft = 72, kRight = 32, kTop = 64, kHeight = 320, kLegendLine = 22;
constexpr std::array kColours{"#4477aa", "#228833", "#aa3377", "#8a7d1c"};

constexpr const char* kStyle = R"(<style>
text { font: 13px system-ui, sans-serif; fill: #24292f; font-variant-numeric: tabular-nums }
.title { font-weight: 600; font-size: 15px } .soft { fill: #6b7280 } .line { stroke: #d8dce2 } .page { fill: #fff }
.curve { fill: none; stroke-width: 2.2 }
@media (prefers-color-scheme: dark) {
text { fill: #e6e8eb } .soft { fill: #9aa3ae } .line { stroke: #343a42 } .page { fill: #15181c } }
</style>)";

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text)
    out += c == '<'   ? "&lt;"
           : c == '>' ? "&gt;"
           : c == '&' ? "&amp;"
           : c == '"' ? "&quot;"
                      : std::string(1, c);
  return out;
}

std::string text(const char* style, const char* anchor, double x, double y, const std::string& what) {
  return fmt::format("<text class=\"{}\" text-anchor=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", style,
                     anchor, x, y, escaped(what));
}

std::string line(double x1, double y1, double x2, double y2) {
  return fmt::format("<line class=\"line\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", x1,
                     y1, x2, y2);
}

std::string stroke(std::size_t curve) {
  return fmt::format("stroke=\"{}\"{}", kColours[curve % kColours.size()],
                     curve < kColours.size() ? "" : " stroke-dasharray=\"7 4\"");
}

}  // namespace

std::string efficiency_svg(const std::vector<Curve>& curves, const std::string& title) {
  const std::size_t count = std::min(curves.size(), kMaxCurves);
  std::set<int> ranks;
  for (std::size_t i = 0; i < count; ++i)
    for (const auto& point : curves[i].points) ranks.insert(point.first);
  const double low = ranks.empty() ? 0 : std::log2(*ranks.begin()),
               high = ranks.empty() ? 1 : std::max(low + 1, std::log2(*ranks.rbegin()));
  const double bottom = kTop + kHeight, height = bottom + 56 + kLegendLine * static_cast<double>(count);
  const auto x = [&](int p) {
    return kLeft + (std::log2(p) - low) / (high - low) * (kWidth - kLeft - kRight);
  };
  const auto y = [&](double efficiency) { return bottom - std::clamp(efficiency, 0.0, 1.0) * kHeight; };

  std::string subtitle = "scaling efficiency, percent: images a second and rank, relative to one rank";
  if (count < curves.size()) subtitle += fmt::format("; the first {} of {} curves", count, curves.size());
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" role=\"img\" aria-label=\"{2}\">\n{3}\n"
      "<rect class=\"page\" width=\"{0:.0f}\" height=\"{1:.0f}\"/>\n",
      kWidth, height, escaped(title), kStyle);
  out += text("title", "start", 24, 26, title) + text("soft", "start", 24, 46, subtitle);
  for (int percent = 0; percent <= 100; percent += 20)
    out += line(kLeft, y(percent / 100.0), kWidth - kRight, y(percent / 100.0)) +
           text("soft", "end", kLeft - 8, y(percent / 100.0) + 4, std::to_string(percent));
  double free_from = 0;  // Labels of neighbours must not overlap.
  for (const int p : ranks) {
    out += line(x(p), bottom, x(p), bottom + 5);
    if (x(p) < free_from) continue;
    out += text("soft", "middle", x(p), bottom + 20, std::to_string(p));
    free_from = x(p) + 40;
  }
  out += text("soft", "end", kWidth - kRight, bottom + 38, "ranks");
  for (std::size_t i = 0; i < count; ++i) {
    std::string points, dots;
    for (const auto& [p, efficiency] : curves[i].points) {
      points += fmt::format("{}{:.1f},{:.1f}", points.empty() ? "" : " ", x(p), y(efficiency));
      dots += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"><title>{} ranks: {:.1f} %</title>"
          "</circle>\n",
          x(p), y(efficiency), kColours[i % kColours.size()], p, 100 * efficiency);
    }
    const double at = bottom + 52 + kLegendLine * static_cast<double>(i);
    out += fmt::format("<polyline class=\"curve\" {} points=\"{}\"/>\n", stroke(i), points) + dots;
    out += fmt::format(
        "<line class=\"curve\" {0} x1=\"{1:.0f}\" x2=\"{2:.0f}\" y1=\"{3:.1f}\" y2=\"{3:.1f}\"/>\n",
        stroke(i), kLeft, kLeft + 36, at - 4);
    out += text("", "start", kLeft + 46, at, curves[i].label);
  }
  return out + "</svg>\n";
}

}  // namespace brigade::apps
