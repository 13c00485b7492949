// SPDX-License-Identifier: MIT
// tests/nn/layer_spans_test.cpp - modules, graph and optimizer mark whose time it is: the names of spans are the paths
// of layers, forward in the order of calls and backward the other way round.
#include "autograd/engine.h"
#include "autograd/ops/arithmetic.h"
#include "autograd/ops/loss.h"
#include "autograd/ops/reduce.h"
#include "core/span.h"
#include "core/timeline.h"
#include "kernels/ops.h"
#include "nn/linear.h"
#include "nn/optim/sgd.h"
#include "nn/sequential.h"
#include "tests/support/test.h"

using namespace brigade;

namespace {

// stem, then two blocks in a chain.
struct Net final : nn::Module {
  Net() : stem(4, 6) {
    register_module("stem", stem);
    blocks.emplace<nn::Linear>(6, 6);
    blocks.emplace<nn::Linear>(6, 3);
    register_module("blocks", blocks);
  }
  Variable forward(const Variable& x) override { return blocks(stem(x)); }
  nn::Linear stem;
  nn::Sequential blocks;
};

struct Kernels final : SpanSink {
  void begin(std::string_view name, const SpanDetails&) override { names.emplace_back(name); }
  void end() override {}
  std::vector<std::string> names;
};

std::vector<std::string> names_of(Timeline& timeline, SpanKind kind) {
  std::vector<TimedSpan> spans;
  timeline.take(spans);
  std::vector<std::string> out;
  for (const TimedSpan& span : spans)
    if (span.kind == kind) out.push_back(timeline.name(span));
  return out;
}

Variable loss_of(Net& net) {
  const Tensor labels = Tensor::from(std::vector<std::int64_t>{0, 2}, {2});
  return cross_entropy(net(Variable(ops::full({2, 4}, 0.5))), labels);
}

}  // namespace

TEST_CASE("layers are numbered in the order of the walk, by their paths", "[nn][timeline]") {
  Net net;
  REQUIRE(net.number_layers() == std::vector<std::string>{"", "stem", "blocks", "blocks.0", "blocks.1"});
}

TEST_CASE("forward marks layers as they are called, backward in the reverse order", "[nn][timeline]") {
  Net net;
  Timeline timeline;
  timeline.set_layers(net.number_layers());
  const TimelineScope listening(&timeline);
  const Variable loss = loss_of(net);
  REQUIRE(names_of(timeline, SpanKind::forward) ==
          std::vector<std::string>{"forward", "stem", "blocks", "blocks.0", "blocks.1"});
  backward(loss);
  REQUIRE(names_of(timeline, SpanKind::backward) ==
          std::vector<std::string>{"backward", "blocks", "blocks.1", "blocks.0", "stem"});
}

TEST_CASE("a ReLU that a linear layer takes along is no kernel of its own and keeps its layer",
          "[nn][timeline]") {
  nn::Sequential net;
  net.emplace<nn::Linear>(4, 6);
  net.emplace<nn::ReLU>();
  net.emplace<nn::ReLU>();  // Behind no linear layer.
  Timeline timeline;
  timeline.set_layers(net.number_layers());
  const TimelineScope listening(&timeline);
  const Variable x(ops::full({2, 4}, 0.5));
  const Variable y = [&] {
    Kernels kernels;
    const SpanListener listener(kernels);
    const Variable out = net(x);
    REQUIRE(kernels.names == std::vector<std::string>{"linear", "relu"});
    return out;
  }();
  REQUIRE(names_of(timeline, SpanKind::forward) == std::vector<std::string>{"forward", "0", "1", "2"});
  backward(sum(y));
  REQUIRE(names_of(timeline, SpanKind::backward) == std::vector<std::string>{"backward", "2", "1", "0"});
}

TEST_CASE("a graph recorded while nobody listened is one plain backward", "[nn][timeline]") {
  Net net;
  Timeline timeline;
  timeline.set_layers(net.number_layers());
  const Variable loss = loss_of(net);
  const TimelineScope listening(&timeline);
  backward(loss);
  REQUIRE(names_of(timeline, SpanKind::backward) == std::vector<std::string>{"backward"});
}

TEST_CASE("an optimizer's step is a span", "[nn][timeline]") {
  Net net;
  optim::FlatParameters parameters(net.named_parameters());
  optim::Sgd optimizer(parameters, 0.1);
  Timeline timeline;
  const TimelineScope listening(&timeline);
  optimizer.step();
  REQUIRE(names_of(timeline, SpanKind::optimizer) == std::vector<std::string>{"optimizer"});
}
