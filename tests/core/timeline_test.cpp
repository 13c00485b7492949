// SPDX-License-Identifier: MIT
// tests/core/timeline_test.cpp - spans of layers: how they nest, how backward moves between them, and what is bounded.
#include "core/timeline.h"

#include "core/check.h"
#include "tests/support/test.h"

using namespace brigade;

namespace {

// "forward 0", ". layer1 1" …: names with their depth, in order of beginning.
std::vector<std::string> shape_of(Timeline& timeline) {
  std::vector<TimedSpan> spans;
  timeline.take(spans);
  std::vector<std::string> out;
  for (const TimedSpan& span : spans) out.push_back(str(timeline.name(span), " ", span.depth));
  return out;
}

Timeline with_layers() {
  Timeline timeline;
  timeline.set_layers({"", "conv1", "layer1", "layer1.0", "layer1.0.conv1", "layer1.0.conv2", "layer1.1"});
  return timeline;
}

}  // namespace

TEST_CASE("scopes become spans that nest, in order of beginning", "[core][timeline]") {
  Timeline timeline = with_layers();
  {
    const TimelineScope listening(&timeline);
    const TimedScope root(SpanKind::forward, 0);
    { const TimedScope conv(SpanKind::forward, 1); }
    {
      const TimedScope layer(SpanKind::forward, 2);
      const TimedScope block(SpanKind::forward, 3);
      REQUIRE(current_layer() == 3);
    }
    REQUIRE(current_layer() == 0);
  }
  REQUIRE(shape_of(timeline) == std::vector<std::string>{"forward 0", "conv1 1", "layer1 1", "layer1.0 2"});
}

TEST_CASE("a span lies within the one around it, and neighbours do not overlap", "[core][timeline]") {
  Timeline timeline = with_layers();
  const TimelineScope listening(&timeline);
  {
    BackwardSpans backward;
    for (const int layer : {6, 5, 4, 1}) backward.at(layer);
  }
  std::vector<TimedSpan> spans;
  timeline.take(spans);
  std::vector<TimedSpan> open;
  for (const TimedSpan& span : spans) {
    REQUIRE(span.begin <= span.end);
    open.resize(static_cast<std::size_t>(span.depth), {});
    if (!open.empty()) REQUIRE((open.back().begin <= span.begin && span.end <= open.back().end));
    open.push_back(span);
  }
  for (std::size_t i = 1; i < spans.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (spans[j].depth == spans[i].depth) REQUIRE(spans[j].end <= spans[i].begin);
}

TEST_CASE("backward opens the layers that an operation's layer is part of, and shares what stays open",
          "[core][timeline]") {
  Timeline timeline = with_layers();
  {
    const TimelineScope listening(&timeline);
    BackwardSpans backward;
    for (const int layer : {-1, 6, 5, 5, 4, 3, 0, 1}) backward.at(layer);
  }
  REQUIRE(shape_of(timeline) == std::vector<std::string>{"backward 0", "layer1 1", "layer1.1 2", "layer1.0 2",
                                                         "layer1.0.conv2 3", "layer1.0.conv1 3", "conv1 1"});
}

TEST_CASE("a forward inside a backward, as of a checkpoint, nests where it runs", "[core][timeline]") {
  Timeline timeline = with_layers();
  {
    const TimelineScope listening(&timeline);
    BackwardSpans backward;
    backward.at(3);
    {
      { const TimedScope again(SpanKind::forward, 4); }
      BackwardSpans inner;
      inner.at(4);
    }
    backward.at(1);
  }
  REQUIRE(shape_of(timeline) == std::vector<std::string>{"backward 0", "layer1 1", "layer1.0 2",
                                                         "layer1.0.conv1 3", "backward 3", "layer1 4",
                                                         "layer1.0 5", "layer1.0.conv1 6", "conv1 1"});
}

TEST_CASE("without a listener, and for layers without a number, nothing is recorded", "[core][timeline]") {
  Timeline timeline;
  {
    const TimedScope unheard(SpanKind::optimizer);
    BackwardSpans backward;
    backward.at(3);
    REQUIRE(current_layer() == -1);
  }
  {
    const TimelineScope listening(&timeline);
    const TimedScope unnumbered(SpanKind::forward, -1);
    const TimelineScope not_any_more(nullptr);
    const TimedScope unheard(SpanKind::data);
  }
  REQUIRE(shape_of(timeline).empty());
}

TEST_CASE("an exception closes what it leaves", "[core][timeline]") {
  Timeline timeline = with_layers();
  try {
    const TimelineScope listening(&timeline);
    BackwardSpans backward;
    backward.at(5);
    throw Error("out");
  } catch (const Error&) {
  }
  REQUIRE(timeline.open_count() == 0);
  REQUIRE(shape_of(timeline).size() == 4);
}

TEST_CASE("beyond the limit spans are counted, not kept, and nesting stays sound", "[core][timeline]") {
  Timeline timeline;
  const TimelineScope listening(&timeline);
  for (std::size_t i = 0; i < Timeline::kMaxSpans + 7; ++i) const TimedScope span(SpanKind::data);
  REQUIRE(timeline.lost() == 7);
  REQUIRE(shape_of(timeline).size() == Timeline::kMaxSpans);
  { const TimedScope span(SpanKind::data); }
  REQUIRE(timeline.lost() == 0);
  REQUIRE(shape_of(timeline) == std::vector<std::string>{"data 0"});
}

TEST_CASE("taking spans while some are open is refused", "[core][timeline][error]") {
  Timeline timeline;
  timeline.begin(SpanKind::forward);
  std::vector<TimedSpan> spans;
  REQUIRE_THROWS_WITH(timeline.take(spans), ContainsSubstring("1 spans are open"));
  REQUIRE_THROWS_WITH(timeline.set_layers({}), ContainsSubstring("1 spans are open"));
}
