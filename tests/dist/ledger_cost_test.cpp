// SPDX-License-Identifier: MIT
// tests/dist/ledger_cost_test.cpp - what the ledger costs: a benchmark, for it measures time. It counts the spans and
// records of a step of ResNet-18 and multiplies by what one costs:
//   test_ledger_cost
#include <functional>
#include <iostream>

#include "autograd/engine.h"
#include "autograd/ops/loss.h"
#include "dist/ddp.h"
#include "dist/ledger_gather.h"
#include "kernels/ops.h"
#include "models/catalog.h"
#include "nn/optim/sgd.h"
#include "tests/support/ranks.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::dist;

namespace {

double seconds_of(const std::function<void()>& work) {
  double best = 1e9;
  for (int round = 0; round < 5; ++round) {
    const auto begin = Clock::now();
    work();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

}  // namespace

TEST_CASE("the ledger costs less than 1 % of a small step", "[benchmark][dist][ledger]") {
  // A span, inside of an open one.
  Timeline timeline;
  constexpr int kSpans = 10'000;
  const double span_s = seconds_of([&] {
                          timeline.clear();
                          const TimelineScope listening(&timeline);
                          for (int i = 0; i < kSpans; ++i) const TimedScope span(SpanKind::forward, 1);
                        }) /
                        kSpans;
  test::for_each_world(
      [&](ProcessGroup& group) {
        default_generator() = {.seed = 1};
        const auto model = models::make_model("resnet18");
        Ddp ddp(model->named_parameters(), model->named_buffers(), group);
        ddp.ledger().timeline().set_layers(model->number_layers());
        optim::Sgd optimizer(ddp.parameters(), 0.01);
        const Variable images(test::random({2, 3, 32, 32}, 1));  // As small a batch as training may have.
        const Tensor labels = Tensor::from(std::vector<std::int64_t>{1, 7}, {2});
        double step_s = 1e9;
        for (int step = 0; step < 5; ++step) {
          const auto begin = Clock::now();
          {
            const StepScope scope(ddp.ledger());
            ddp.parameters().zero_grad();
            backward(cross_entropy((*model)(images), labels));
            optimizer.step();
          }
          step_s = std::min(step_s, std::chrono::duration<double>(Clock::now() - begin).count());
        }
        const StepRecord& record = ddp.ledger().last();
        // Twice the clock a bucket when it is ready, launched, waited for; one reading a gradient. A span costs two.
        const double readings = 2.0 * static_cast<double>(record.spans.size()) +
                                static_cast<double>(record.ready.size()) +
                                6.0 * static_cast<double>(record.buckets.size());
        const double encode_s =
            seconds_of([&] { static_cast<void>(encode_steps(ddp.ledger(), record.step, {}, 1 << 17)); });
        const double cost_s = readings * span_s / 2 + encode_s;
        std::cout << "a span " << 1e9 * span_s << " ns; a step " << 1e3 * step_s << " ms, "
                  << record.spans.size() << " spans, " << record.buckets.size() << " buckets, encoded in "
                  << 1e6 * encode_s << " us; the ledger " << 100 * cost_s / step_s << " %\n";
        test::require(cost_s < 0.01 * step_s, "under 1 %");
      },
      {.sizes = {1}});
}
