// SPDX-License-Identifier: MIT
// apps/report/pictures.cpp - see the header. Colours as in page/page.css: greys for computation, five colours that
// colour-blind people can tell apart for buckets, red for what is exposed only ("bright", Paul Tol, 2021).
#include "apps/report/pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "apps/report/advice.h"

namespace brigade::report {
namespace {

constexpr double kWidth = 960, kLeft = 72, kRight = 24;

constexpr const char* kStyle = R"(<style>
text { font: 13px system-ui, sans-serif; fill: #24292f; font-variant-numeric: tabular-nums }
.title { font-weight: 600; font-size: 15px } .soft { fill: #6b7280 } .in { fill: #fff; font-size: 11px }
.line { stroke: #d8dce2 } .page { fill: #fff }
.forward { fill: #d5dbe3 } .backward { fill: #aeb8c4 } .optimizer { fill: #7e8996 } .data, .other { fill: #eceff3 }
.b0 { fill: #4477aa } .b1 { fill: #228833 } .b2 { fill: #aa3377 } .b3 { fill: #2c86a6 } .b4 { fill: #887a17 }
.exposed { fill: none; stroke: #d0304a; stroke-width: 2 } .bar { fill: #4477aa }
.mark { stroke: #24292f; stroke-dasharray: 3 3 }
@media (prefers-color-scheme: dark) {
text { fill: #e6e8eb } .soft { fill: #9aa3ae } .line { stroke: #343a42 } .page { fill: #15181c }
.mark { stroke: #e6e8eb }
.forward { fill: #39414a } .backward { fill: #58636f } .optimizer { fill: #8792a0 } .data, .other { fill: #262c33 }
.exposed { stroke: #ff7a8a } }
</style>)";

// For text between tags and in attributes.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else if (static_cast<unsigned char>(c) >= 0x20)
      out += c;
  }
  return out;
}

std::string frame(double height, const std::string& title, const std::string& subtitle) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" "
      "role=\"img\" aria-label=\"{2}\">\n{4}\n<rect class=\"page\" width=\"{0:.0f}\" height=\"{1:.0f}\"/>\n"
      "<text class=\"title\" x=\"{5}\" y=\"26\">{2}</text>\n<text class=\"soft\" x=\"{5}\" "
      "y=\"46\">{3}</text>\n",
      kWidth, height, escaped(title), escaped(subtitle), kStyle, 24);
}

std::string box(const std::string& style, double x, double y, double width, double height,
                const std::string& tip) {
  return fmt::format(
      "<rect class=\"{}\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" "
      "rx=\"1.5\"><title>{}</title></rect>\n",
      style, x, y, std::max(width, 0.5), height, escaped(tip));
}

std::string text(const char* style, const char* anchor, double x, double y, const std::string& what) {
  return fmt::format("<text class=\"{}\" text-anchor=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", style,
                     anchor, x, y, escaped(what));
}

std::string vertical(const char* style, double x, double top, double bottom) {
  return fmt::format("<line class=\"{0}\" x1=\"{1:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{3:.1f}\"/>\n",
                     style, x, top, bottom);
}

// Ticks of an axis in milliseconds, with their lines.
std::string axis(double from_ms, double to_ms, double top, double bottom) {
  std::string out;
  const double step = tick_step(to_ms - from_ms, 10), scale = (kWidth - kLeft - kRight) / (to_ms - from_ms);
  for (double t = std::ceil(from_ms / step) * step; t <= to_ms + 1e-9 * step; t += step) {
    const double x = kLeft + (t - from_ms) * scale;
    out +=
        vertical("line", x, top, bottom) + text("soft", "middle", x, bottom + 18, fmt::format("{:.6g}", t));
  }
  return out + text("soft", "end", kWidth - kRight, bottom + 36, "milliseconds");
}

// Computation above, communication below, and a frame around what sticks out.
std::string rank_rows(const RankTimeline& rank, double top, double height, double us_to_x) {
  const auto x = [&](double us) { return kLeft + us * us_to_x; };
  std::string out = text("soft", "end", kLeft - 12, top + height + 4, fmt::format("rank {}", rank.rank));
  for (const ComputeSpan& s : rank.spans) {
    const double inset = std::min(3 * s.depth, 6);  // Nested spans leave an edge of those around them.
    out += box(name(s.kind), x(s.begin_us), top + inset, (s.end_us - s.begin_us) * us_to_x,
               height - 2 - inset, fmt::format("{}, {}", s.name, ms_text(1e-3 * (s.end_us - s.begin_us))));
  }
  const Backward backward = backward_of(rank);
  for (const BucketSpan& b : rank.buckets) {
    const double width = (b.end_us - b.start_us) * us_to_x;
    out += box(fmt::format("b{}", b.bucket % 5), x(b.start_us), top + height, width, height,
               fmt::format("bucket {}, {}, {}", b.bucket, bytes_text(static_cast<double>(b.bytes)),
                           ms_text(1e-3 * (b.end_us - b.start_us))));
    if (width > 14)
      out +=
          text("in", "middle", x(b.start_us) + width / 2, top + 1.5 * height + 4, std::to_string(b.bucket));
    const double exposed = b.end_us - std::max(b.start_us, backward.end_us);
    if (backward.end_us > 0 && exposed > 0)
      out += box("exposed", x(b.end_us - exposed), top + height + 1, exposed * us_to_x, height - 2,
                 fmt::format("exposed, {}", ms_text(1e-3 * exposed)));
  }
  return out;
}

}  // namespace

Backward backward_of(const RankTimeline& rank) {
  Backward out;
  for (const ComputeSpan& s : rank.spans) {
    if (s.kind != SpanKind::backward) continue;
    if (out.end_us == 0) out.begin_us = s.begin_us;
    out.end_us = std::max(out.end_us, s.end_us);
  }
  return out;
}

double tick_step(double length, int ticks) {
  const double rough = length / ticks, power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= rough * (1 - 1e-9)) return factor * power;
  return 10 * power;
}

std::string timeline_svg(const Timeline& timeline, const std::string& title) {
  constexpr std::size_t kMaxRanks = 16;
  const std::size_t ranks = std::min(timeline.ranks.size(), kMaxRanks);
  const double height = ranks > 4 ? 14 : 24, gap = 14, top = 66;
  const double bottom = top + static_cast<double>(ranks) * (2 * height + gap);
  std::string subtitle = fmt::format(
      "Step {}: computation above, communication (buckets) below; framed: exposed.", timeline.step);
  if (ranks < timeline.ranks.size())
    subtitle += fmt::format(" The first {} of {} ranks.", ranks, timeline.ranks.size());
  std::string out = frame(bottom + 52, title, subtitle);
  const double length_us = std::max(timeline.length_us, 1.0);
  out += axis(0, 1e-3 * length_us, top - 6, bottom);
  for (std::size_t i = 0; i < ranks; ++i)
    out += rank_rows(timeline.ranks[i], top + static_cast<double>(i) * (2 * height + gap), height,
                     (kWidth - kLeft - kRight) / length_us);
  return out + "</svg>\n";
}

std::string step_time_svg(const RunSummary& run, const std::string& title) {
  const std::vector<double>& values = run.step_ms_values;
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  // A single value has no width: a tenth of it on both sides makes it a bar in the middle.
  const double pad = *high > *low ? 0 : std::max(0.1 * *high, 1e-3);
  const double from = *low - pad, to = *high + pad;
  constexpr std::size_t kBins = 40;
  std::vector<double> counts(kBins, 0);
  for (const double v : values)
    ++counts[std::min(static_cast<std::size_t>((v - from) / (to - from) * static_cast<double>(kBins)),
                      kBins - 1)];
  const double most = *std::max_element(counts.begin(), counts.end());

  constexpr double kTop = 96, kBottom = 300;
  std::string out =
      frame(kBottom + 52, title,
            fmt::format("How long {} steps took, without the first {}.", values.size(), run.warm_up));
  out += axis(from, to, kTop, kBottom);
  const double width = (kWidth - kLeft - kRight) / static_cast<double>(kBins);
  for (std::size_t i = 0; i < kBins; ++i) {
    if (counts[i] == 0) continue;
    const double bar = (kBottom - kTop) * counts[i] / most;
    out += box("bar", kLeft + static_cast<double>(i) * width + 0.5, kBottom - bar, width - 1, bar,
               fmt::format("{:.0f} steps", counts[i]));
  }
  out += text("soft", "end", kLeft - 12, kTop + 4, fmt::format("{:.0f}", most)) +
         text("soft", "end", kLeft - 12, kBottom, "0");
  // Labels on two heights: p95 and p99 are often neighbours.
  double label_y = kTop - 22;
  for (const auto& [label, value] :
       {std::pair{"p50", run.step_ms.p50}, {"p95", run.step_ms.p95}, {"p99", run.step_ms.p99}}) {
    const double x = kLeft + (value - from) / (to - from) * (kWidth - kLeft - kRight);
    out +=
        vertical("mark", x, label_y + 4, kBottom) +
        text("", x > 0.8 * kWidth ? "end" : "start", x, label_y, fmt::format("{} {}", label, ms_text(value)));
    label_y += 14;
  }
  return out + "</svg>\n";
}

}  // namespace brigade::report
