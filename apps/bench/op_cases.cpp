// SPDX-License-Identifier: MIT
// apps/bench/op_cases.cpp - one function a family: shapes, operands, work. A new family is a row of the table below.
#include "apps/bench/op_cases.h"

#include <algorithm>

#include "autograd/engine.h"
#include "autograd/ops/loss.h"
#include "core/rng.h"
#include "kernels/ops.h"
#include "models/catalog.h"
#include "nn/batch_norm.h"
#include "nn/optim/catalog.h"

namespace brigade::apps {

using Entry = SpanList::Entry;

const Dims& detail(const Entry& span, std::string_view name) {
  for (const SpanDetail& d : span.details)
    if (d.name == name) return d.value;
  fail(str("bench: span ", span.name, " has no detail ", name));
}

// Its numbers are strides, paddings, dilations, groups.
Window conv_window(const Entry& span) {
  const Dims w = detail(span, "weight"), k = detail(span, "window");
  return {.kernel = {w[2], w[3]},
          .stride = {k[0], k[1]},
          .padding = {k[2], k[3]},
          .dilation = {k[4], k[5]},
          .groups = k[6]};
}

namespace {

using Numbers = std::vector<std::int64_t>;

// 32x64x8x8
std::string text(const Dims& dims) {
  std::string out;
  for (const std::int64_t n : dims) out += str(out.empty() ? "" : "x", n);
  return out;
}

// Normal numbers: zeros would be kinder to some processors, and to 16-bit rounding.
Tensor random(const Shape& shape, DType dtype) {
  Generator generator{.seed = 1};
  const Tensor x = ops::cast(ops::randn(shape, generator), dtype);
  return shape.size() == 4 ? ops::contiguous(x, MemoryFormat::channels_last) : x;
}
Tensor parameter(const Shape& shape) {
  Generator generator{.seed = 2};
  return ops::randn(shape, generator, 0, 0.05);
}

double count(const Dims& shape) { return static_cast<double>(numel(shape)); }

std::vector<OpCase> conv_cases(const Entry& span, DType precision) {
  const Dims x = detail(span, "x"), w = detail(span, "weight");
  const Window window = conv_window(span);
  const Shape out{x[0], w[0], window.out_size(0, x[2]), window.out_size(1, x[3])};
  const auto item = static_cast<double>(size_of(precision));
  OpCase c{
      .op = std::string(span.name),
      .shape = str(text(x), " * ", text(w), ", stride ", window.stride[0], ", padding ", window.padding[0]),
      .flops = 2 * count(out) * count(w) / static_cast<double>(w[0]),
      .bytes = item * (count(x) + count(out)) + 4 * count(w)};
  if (span.name == "conv2d")
    c.call = [x = random(x, precision), w = parameter(w), window] {
      static_cast<void>(ops::conv2d(x, w, {}, window));
    };
  else if (span.name == "conv2d_grad_input")
    c.call = [x, dy = random(out, precision), w = parameter(w), window] {
      static_cast<void>(ops::conv2d_grad_input(dy, w, window, x));
    };
  else
    c.call = [x = random(x, precision), dy = random(out, precision), dw = Tensor::empty(w),
              window]() mutable { ops::conv2d_grad_weight(dy, x, window, dw); };
  return {c};
}

std::vector<Entry> conv_spans(const Numbers& n) {
  const SpanDetails details{{"x", {n[0], n[1], n[2], n[3]}},
                            {"weight", {n[4], n[1], n[5], n[5]}},
                            {"window", {n[6], n[6], n[7], n[7], 1, 1, 1}}};
  return {{"conv2d", details}, {"conv2d_grad_input", details}, {"conv2d_grad_weight", details}};
}

std::vector<OpCase> linear_cases(const Entry& span, DType precision) {
  const Dims x = detail(span, "x"), w = detail(span, "weight");
  const Shape out{numel(x) / w[1], w[0]};
  const double flops = 2 * count(x) * static_cast<double>(w[0]);
  const std::string shape = str(text(x), " * ", text(w));
  const Tensor xs = random({out[0], w[1]}, precision), ws = parameter(w), dy = random(out, precision);
  return {{.op = "linear", .shape = shape, .flops = flops, .call = [=] { ops::linear(xs, ws, {}); }},
          {.op = "linear_grad_input",
           .shape = shape,
           .flops = flops,
           .call = [=] { ops::linear_grad_input(dy, ws); }},
          {.op = "linear_grad_weight",
           .shape = shape,
           .flops = flops,
           .call = [=, dw = Tensor::empty(w)]() mutable { ops::linear_grad_weight(dy, xs, dw); }}};
}

std::vector<OpCase> matmul_cases(const Entry& span, DType precision) {
  const Dims a = detail(span, "a"), b = detail(span, "b");
  return {{.op = "matmul",
           .shape = str(text(a), " * ", text(b)),
           .flops = 2 * count(a) * static_cast<double>(b.back()),
           .call = [x = random(a, precision), y = random(b, precision)] { ops::matmul(x, y); }}};
}

std::vector<OpCase> batch_norm_cases(const Entry& span, DType precision) {
  const Dims shape = detail(span, "x");
  const auto layer = std::make_shared<nn::BatchNorm2d>(shape[1]);
  const Variable x = Variable::parameter(random(shape, precision));
  const Variable residual = Variable::parameter(random(shape, precision));
  const Tensor dy = random(shape, precision);
  const double bytes = static_cast<double>(x.value().bytes());
  // Alone, and with what follows it in a residual network in the same pass: how many tensors are touched then is told
  // by what is read and written at least once.
  struct Fusion {
    const char* name;
    BatchNormThen then;
    int forward, backward;
  };
  std::vector<OpCase> out;
  for (const Fusion& fusion : {Fusion{"", {}, 2, 3}, Fusion{"_relu", {.relu = true}, 2, 3},
                               Fusion{"_add_relu", {.relu = true, .residual = residual}, 3, 5}}) {
    const BatchNormThen then = fusion.then;
    // Through autograd, which knows what the gradient needs of forward; that adds microseconds.
    std::vector<Variable> inputs = layer->parameters();
    inputs.push_back(x);
    if (then.residual.defined()) inputs.push_back(residual);
    out.push_back({.op = str("batch_norm", fusion.name),
                   .shape = text(shape),
                   .bytes = fusion.forward * bytes,
                   .call = [=] { layer->forward(x, then); }});
    out.push_back({.op = str("batch_norm", fusion.name, "_grad"),
                   .shape = text(shape),
                   .bytes = fusion.backward * bytes,
                   .call = [=, y = layer->forward(x, then)] {
                     grad(y, inputs, {.gradient = dy, .retain_graph = true});
                   }});
  }
  return out;
}

std::vector<OpCase> relu_cases(const Entry& span, DType precision) {
  const Tensor x = random(detail(span, "x"), precision);
  const double bytes = static_cast<double>(x.bytes());
  return {{.op = "relu",
           .shape = text(x.shape()),
           .bytes = 2 * bytes,
           .call = [=] { ops::unary(Unary::relu, x); }},
          {.op = "relu_grad", .shape = text(x.shape()), .bytes = 3 * bytes, .call = [=] {
             ops::binary(Binary::relu_grad, x, x);
           }}};
}

std::vector<OpCase> add_cases(const Entry& span, DType precision) {
  // Additions in place, of a bias and of a number have this name too; they are others.
  if (span.details.size() != 2 || detail(span, "a") != detail(span, "b")) return {};
  const Dims shape = detail(span, "a");
  const Tensor a = random(shape, precision), b = random(shape, precision);
  return {{.op = "add", .shape = text(shape), .bytes = 3 * static_cast<double>(a.bytes()), .call = [=] {
             ops::add(a, b);
           }}};
}

std::vector<OpCase> max_pool_cases(const Entry& span, DType precision) {
  const Dims shape = detail(span, "x"), kernel = detail(span, "kernel"), k = detail(span, "window");
  const Window window{.kernel = {kernel[0], kernel[1]}, .stride = {k[0], k[1]}, .padding = {k[2], k[3]}};
  const Tensor x = random(shape, precision);
  const ops::MaxPooled pooled = ops::max_pool2d(x, window);
  const double bytes = static_cast<double>(x.bytes() + pooled.out.bytes() + pooled.index.bytes());
  const std::string words = str(text(shape), ", kernel ", kernel[0], ", stride ", k[0], ", padding ", k[2]);
  return {{.op = "max_pool2d", .shape = words, .bytes = bytes, .call = [=] { ops::max_pool2d(x, window); }},
          {.op = "max_pool2d_grad", .shape = words, .bytes = bytes, .call = [=] {
             ops::max_pool2d_grad(pooled.out, pooled.index, window, shape);
           }}};
}

std::vector<OpCase> average_cases(const Entry& span, DType precision) {
  const Dims shape = detail(span, "x"), out = detail(span, "out");
  const Tensor x = random(shape, precision), dy = ops::adaptive_avg_pool2d(x, out[0], out[1]);
  const double bytes = static_cast<double>(x.bytes() + dy.bytes());
  const std::string words = str(text(shape), " to ", text(out));
  return {{.op = "adaptive_avg_pool2d",
           .shape = words,
           .bytes = bytes,
           .call = [=] { ops::adaptive_avg_pool2d(x, out[0], out[1]); }},
          {.op = "adaptive_avg_pool2d_grad", .shape = words, .bytes = bytes, .call = [=] {
             ops::adaptive_avg_pool2d_grad(dy, shape);
           }}};
}

std::vector<OpCase> cross_entropy_cases(const Entry& span, DType) {
  const Dims shape = detail(span, "x");
  const Tensor logits = random(shape, DType::f32);
  Tensor labels = Tensor::zeros({shape[0]}, DType::i64);
  for (std::int64_t i = 0; i < shape[0]; ++i) labels.data<std::int64_t>()[i] = i % shape[1];
  const ops::CrossEntropy forward = ops::cross_entropy(logits, labels);
  const double bytes = static_cast<double>(logits.bytes() + forward.log_probs.bytes());
  return {{.op = "cross_entropy",
           .shape = text(shape),
           .bytes = bytes,
           .call = [=] { ops::cross_entropy(logits, labels); }},
          {.op = "cross_entropy_grad", .shape = text(shape), .bytes = bytes, .call = [=] {
             ops::cross_entropy_grad(1, forward, labels, 0, -100, DType::f32);
           }}};
}

std::vector<OpCase> optimizer_cases(const Entry& span, DType) {
  const std::int64_t n = detail(span, "count")[0];
  // Both live as long as the call, and the optimizer points into the parameters.
  struct Held {
    optim::FlatParameters parameters;
    std::unique_ptr<optim::Optimizer> optimizer;
  };
  const auto held = std::make_shared<Held>(
      Held{optim::FlatParameters({{"all", Variable::parameter(parameter({n}))}}), nullptr});
  Variable all = held->parameters.at(0).variable;
  held->parameters.clear_absent(held->parameters.all());
  all.set_grad_present(true);
  held->optimizer = optim::make_optimizer(span.name, held->parameters, {.lr = 0.01, .weight_decay = 5e-4});
  // sgd reads gradient, momentum and value and writes the last two; adamw has one more of what is read and written.
  const double touched = span.name == "adamw" ? 7 : 5;
  return {{.op = std::string(span.name),
           .shape = std::to_string(n),
           .bytes = 4 * touched * static_cast<double>(n),
           .call = [held] { held->optimizer->step(); }}};
}

std::vector<Entry> optimizer_spans(const Numbers& n) {
  return {{"sgd", {{"count", {n[0]}}}}, {"adamw", {{"count", {n[0]}}}}};
}

}  // namespace

const std::vector<OpFamily>& op_families() {
  static const std::vector<OpFamily> families{
      {"conv2d",
       "convolution in its three directions",
       "N,C,H,W,O,KERNEL,STRIDE,PADDING",
       {"conv2d", "conv2d_grad_input", "conv2d_grad_weight"},
       conv_cases,
       conv_spans},
      {"linear",
       "linear layer in its three directions",
       "ROWS,IN,OUT",
       {"linear"},
       linear_cases,
       [](const Numbers& n) {
         return std::vector<Entry>{{"linear", {{"x", {n[0], n[1]}}, {"weight", {n[2], n[1]}}}}};
       }},
      {"batch_norm",
       "batch norm in training, alone and with what follows it",
       "N,C,H,W",
       {"batch_norm_train"},
       batch_norm_cases,
       [](const Numbers& n) {
         return std::vector<Entry>{{"batch_norm_train", {{"x", {n[0], n[1], n[2], n[3]}}}}};
       }},
      {"relu",
       "relu, forward and backward",
       "N,C,H,W",
       {"relu"},
       relu_cases,
       [](const Numbers& n) {
         return std::vector<Entry>{{"relu", {{"x", {n[0], n[1], n[2], n[3]}}}}};
       }},
      {"add",
       "sum of two tensors",
       "N,C,H,W",
       {"add"},
       add_cases,
       [](const Numbers& n) {
         const Dims shape{n[0], n[1], n[2], n[3]};
         return std::vector<Entry>{{"add", {{"a", shape}, {"b", shape}}}};
       }},
      {"max_pool2d",
       "max-pooling, forward and backward",
       "N,C,H,W,KERNEL,STRIDE,PADDING",
       {"max_pool2d"},
       max_pool_cases,
       [](const Numbers& n) {
         return std::vector<Entry>{{"max_pool2d",
                                    {{"x", {n[0], n[1], n[2], n[3]}},
                                     {"kernel", {n[4], n[4]}},
                                     {"window", {n[5], n[5], n[6], n[6], 1, 1, 1}}}}};
       }},
      {"avg_pool2d",
       "mean of an image, forward and backward",
       "N,C,H,W",
       {"adaptive_avg_pool2d"},
       average_cases,
       [](const Numbers& n) {
         return std::vector<Entry>{
             {"adaptive_avg_pool2d", {{"x", {n[0], n[1], n[2], n[3]}}, {"out", {1, 1}}}}};
       }},
      {"cross_entropy",
       "softmax cross-entropy, forward and backward",
       "ROWS,CLASSES",
       {"cross_entropy"},
       cross_entropy_cases,
       [](const Numbers& n) {
         return std::vector<Entry>{{"cross_entropy", {{"x", {n[0], n[1]}}}}};
       }},
      {"matmul",
       "matrix product",
       "M,K,N",
       {"matmul"},
       matmul_cases,
       [](const Numbers& n) {
         return std::vector<Entry>{{"matmul", {{"a", {n[0], n[1]}}, {"b", {n[1], n[2]}}}}};
       }},
      {"optimizer",
       "one step of sgd with momentum, and of adamw, over flat memory",
       "PARAMETERS",
       {"sgd", "adamw"},
       optimizer_cases,
       optimizer_spans},
  };
  return families;
}

std::vector<OpCase> make_cases(const Entry& span, DType precision) {
  for (const OpFamily& family : op_families())
    if (std::find(family.spans.begin(), family.spans.end(), span.name) != family.spans.end())
      return family.cases(span, precision);
  return {};
}

Recorded record_step(const RecordOptions& o) {
  default_generator() = {.seed = 1};
  const Shape image{3, o.image_size, o.image_size};
  const auto model = models::make_model(o.model, {.stem = o.stem, .precision = o.precision, .image = image});
  const Tensor images = random({o.batch_size, 3, o.image_size, o.image_size}, DType::f32);
  const Tensor labels = Tensor::zeros({o.batch_size}, DType::i64);
  SpanList list;
  {
    const SpanListener listen(list);
    backward(cross_entropy((*model)(Variable(images)), labels));
  }
  return {list.entries(), nn::count_parameters(*model)};
}

std::vector<std::pair<Entry, int>> count_equal(const std::vector<Entry>& spans) {
  std::vector<std::pair<Entry, int>> out;
  for (const Entry& span : spans) {
    const auto same = [&](const auto& known) {
      return known.first.name == span.name && known.first.details == span.details;
    };
    const auto at = std::find_if(out.begin(), out.end(), same);
    if (at == out.end())
      out.push_back({span, 1});
    else
      ++at->second;
  }
  return out;
}

}  // namespace brigade::apps
