// SPDX-License-Identifier: MIT
// tests/core/span_test.cpp - who hears which spans, and what their times add up to.
#include "core/span.h"

#include <thread>

#include "tests/support/test.h"

using namespace brigade;

namespace {

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

double ms(Clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

}  // namespace

TEST_CASE("a span is heard by the listener of its thread and by nobody else", "[core][span]") {
  SpanList outer, inner;
  { const Span unheard("before"); }
  {
    const SpanListener listen(outer);
    const Span a("a");
    {
      const SpanListener instead(inner);
      const Span b("b");
    }
    const Span c("c");
    std::thread([] { const Span elsewhere("other thread"); }).join();
  }
  { const Span unheard("after"); }
  REQUIRE(outer.entries().size() == 2);
  CHECK(outer.entries()[0].name == "a");
  CHECK(outer.entries()[1].name == "c");
  REQUIRE(inner.entries().size() == 1);
  CHECK(inner.entries()[0].name == "b");
}

TEST_CASE("details of a span are made only for a listener", "[core][span]") {
  int made = 0;
  const auto details = [&] {
    ++made;
    return SpanDetails{{"x", Dims{2, 3}}};
  };
  { const Span span("quiet", details); }
  CHECK(made == 0);
  SpanList list;
  const SpanListener listen(list);
  { const Span span("heard", details); }
  CHECK(made == 1);
  REQUIRE(list.entries().size() == 1);
  CHECK(list.entries()[0].details == SpanDetails{{"x", Dims{2, 3}}});
}

TEST_CASE("a listener that leaves in the middle of a span hears its end, one that comes hears nothing",
          "[core][span]") {
  SpanTotals totals;
  {
    auto listen = std::make_unique<SpanListener>(totals);
    const Span span("left");
    listen.reset();
  }
  CHECK(totals.of("left").calls == 1);
  {
    const Span span("early");
    const SpanListener listen(totals);
  }
  CHECK(totals.of("early").calls == 0);
}

TEST_CASE("totals give each name its own time, without that of spans inside", "[core][span]") {
  SpanTotals totals;
  const auto begin = Clock::now();
  {
    const SpanListener listen(totals);
    const Span outer("outer");
    sleep_ms(5);
    for (int i = 0; i < 3; ++i) {
      const Span inner("inner");
      sleep_ms(10);
    }
  }
  const double all = ms(Clock::now() - begin);
  const double outer = ms(totals.of("outer").self), inner = ms(totals.of("inner").self);
  CHECK(totals.of("outer").calls == 1);
  CHECK(totals.of("inner").calls == 3);
  CHECK(inner >= 30);
  CHECK(outer >= 5);
  CHECK(outer + inner <= all);  // Nothing counts twice.
  totals.clear();
  CHECK(totals.of("inner").calls == 0);
}
