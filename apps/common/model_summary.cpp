// SPDX-License-Identifier: MIT
// apps/common/model_summary.cpp - see the header.
#include "apps/common/model_summary.h"

#include <cxxabi.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <typeinfo>

#include "apps/common/run_main.h"
#include "apps/common/wrap_model.h"
#include "autograd/engine.h"
#include "autograd/node.h"
#include "autograd/ops/loss.h"
#include "core/span.h"
#include "core/timeline.h"
#include "data/loader.h"
#include "data/synthetic.h"
#include "dist/ready_order.h"
#include "kernels/kernels.h"

namespace brigade::apps {
namespace {

// "brigade::nn::Conv2d" -> "Conv2d"
std::string kind_of(const nn::Module& module) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(typeid(module).name(), nullptr, nullptr, &status), std::free);
  const std::string name = status == 0 ? text.get() : typeid(module).name();
  return name.substr(name.rfind(':') + 1);  // npos + 1 is 0.
}

std::string parent_of(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

// Without the batch dimension.
Shape of_one_image(const Shape& shape) { return Shape(std::span(shape.begin() + 1, shape.end())); }

std::int64_t product(const Dims& dims) {
  return std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>());
}

// Multiply-adds of an operation as it says what it works on (kernels/ops_spatial.cpp, ops_matmul.cpp); 0 for those
// whose time goes into moving bytes.
std::int64_t products_of(std::string_view op, const SpanDetails& details) {
  const auto of = [&](std::size_t i) -> const Dims& { return details[i].value; };
  if (op == "linear") return product(of(0)) * of(1)[0];
  if (op == "matmul") return product(of(0)) * of(1)[of(1).size() - 1];
  if (op != "conv2d") return 0;
  const Dims &x = of(0), &weight = of(1), &k = of(2);
  const Window window{.kernel = {weight[2], weight[3]},
                      .stride = {k[0], k[1]},
                      .padding = {k[2], k[3]},
                      .dilation = {k[4], k[5]},
                      .groups = k[6]};
  return x[0] * window.out_size(0, x[2]) * window.out_size(1, x[3]) * product(weight);
}

// Adds up products by the layer that computes.
class Products final : public SpanSink {
 public:
  void begin(std::string_view op, const SpanDetails& details) override {
    if (!details.empty()) by_layer[current_layer()] += products_of(op, details);
  }
  void end() override {}
  std::map<int, std::int64_t> by_layer;
};

// Shapes of what left each layer: an operation's result is the input of the next one in the graph.
void read_shapes(const Variable& out, std::vector<LayerFacts>& layers) {
  std::map<std::string, std::size_t> number;
  for (std::size_t i = 0; i < layers.size(); ++i) number[layers[i].path] = i;
  std::vector<std::uint64_t> latest(layers.size());
  const auto visit = [&](const Node& node, const Shape& shape) {
    if (node.layer < 0) return;
    // What the last operation inside a layer makes is the layer's result, and counts for those around it.
    for (std::string path = layers[static_cast<std::size_t>(node.layer)].path;; path = parent_of(path)) {
      const std::size_t i = number.at(path);
      layers[i].ran = true;
      if (node.sequence + 1 > latest[i]) {
        latest[i] = node.sequence + 1;
        layers[i].output = of_one_image(shape);
      }
      if (path.empty()) return;
    }
  };
  std::set<const Node*> seen;
  std::vector<const Node*> open;
  const auto reach = [&](const std::shared_ptr<Node>& node, const Shape& shape) {
    if (!node || !seen.insert(node.get()).second) return;
    visit(*node, shape);
    open.push_back(node.get());
  };
  reach(out.impl()->node, out.shape());
  while (!open.empty()) {
    const Node& node = *open.back();
    open.pop_back();
    for (std::size_t i = 0; i < node.edges.size(); ++i) reach(node.edges[i].node, node.inputs[i].shape);
  }
}

// 1234567 -> "1,234,567"
std::string grouped(std::int64_t n) {
  std::string text = std::to_string(n);
  for (std::size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, 1, ',');
  return text;
}

// {3}, {3, 4}, {3, 9} -> "3", "3-4", "3,9"
std::string numbers(const std::set<std::size_t>& all) {
  std::string text;
  for (auto at = all.begin(); at != all.end();) {
    auto last = at;
    while (std::next(last) != all.end() && *std::next(last) == *last + 1) ++last;
    text += str(text.empty() ? "" : ",", *at);
    if (last != at) text += str("-", *last);
    at = std::next(last);
  }
  return text.empty() ? "-" : text;
}

}  // namespace

Observed observe_forward(nn::Module& model, const Tensor& images) {
  Observed observed;
  for (std::string& path : model.number_layers())
    observed.layers.push_back({.path = std::move(path), .kind = {}});
  std::size_t next = 0;
  model.for_each_module([&](nn::Module& module) { observed.layers[next++].kind = kind_of(module); });
  std::map<std::string, std::int64_t> own;
  for (const nn::NamedParameter& parameter : model.named_parameters())
    own[parent_of(parameter.name)] += parameter.variable.numel();

  Products products;
  {
    Timeline timeline;  // Only to know on whose behalf an operation runs.
    const TimelineScope on_timeline(&timeline);
    const SpanListener listening(products);
    observed.out = model(images);
  }
  read_shapes(observed.out, observed.layers);
  for (std::size_t i = 0; i < observed.layers.size(); ++i) {
    observed.layers[i].parameters = own[observed.layers[i].path];
    observed.layers[i].products = products.by_layer[static_cast<int>(i)] / images.size(0);
  }
  return observed;
}

std::string model_summary(const TrainOptions& options, dist::ProcessGroup& group) {
  TrainOptions quick = options;
  quick.checkpoint_activations = false;  // It would hide the layers inside.
  quick.batch_size = 2;                  // Batch norm needs two values.
  const int classes = options.cifar100 ? 100 : 10;
  const data::Dataset images =
      data::make_synthetic({.train = 2 * group.size(), .test = 1, .classes = classes, .seed = options.seed})
          .train;
  const auto model = make_model(quick, classes);
  const data::Batch batch = data::Loader(images, quick.loading(group.rank(), group.size())).next();

  std::vector<LayerFacts> layers;
  const std::vector<int> order =
      dist::observe_ready_order(model->named_parameters(), model->named_buffers(), group, [&] {
        Observed observed = observe_forward(*model, batch.images);
        layers = std::move(observed.layers);
        backward(cross_entropy(observed.out, batch.labels));
      });
  const auto ddp = wrap_model(quick, *model, images, group);

  // By layer: when its gradients come, and where they go.
  const std::vector<dist::ParameterInfo>& infos = ddp->parameter_infos();
  const dist::BucketPlan& plan = ddp->plan();
  std::map<std::string, std::set<std::size_t>> ready, buckets;
  for (std::size_t i = 0; i < order.size(); ++i)
    ready[parent_of(infos[static_cast<std::size_t>(order[i])].name)].insert(i + 1);
  for (std::size_t b = 0; b < plan.buckets.size(); ++b)
    for (int at = plan.buckets[b].range.begin; at < plan.buckets[b].range.end; ++at)
      buckets[parent_of(infos[static_cast<std::size_t>(plan.order[static_cast<std::size_t>(at)])].name)]
          .insert(b);

  std::string out = fmt::format("{} on images {}, as observed in one forward and backward\n", options.model,
                                str(of_one_image(batch.images.shape())));
  const auto row = [&](const auto&... cells) {
    out += fmt::format("{:<24}  {:<12}  {:<15}  {:>11}  {:>13}  {:>7}  {:>6}\n", cells...);
  };
  row("layer", "kind", "output", "parameters", "multiply-adds", "ready", "bucket");
  std::int64_t parameters = 0, products = 0;
  for (const LayerFacts& layer : layers) {
    if (!layer.ran) continue;  // An empty Sequential in place of a shortcut.
    parameters += layer.parameters;
    products += layer.products;
    const bool has = layer.parameters > 0;
    row(layer.path.empty() ? options.model : layer.path, layer.kind, str(layer.output),
        has ? grouped(layer.parameters) : "-", layer.products > 0 ? grouped(layer.products) : "-",
        has ? numbers(ready[layer.path]) : "-", has ? numbers(buckets[layer.path]) : "-");
  }
  row("all", "", "", grouped(parameters), grouped(products), order.size(), plan.buckets.size());
  return out +
         fmt::format(
             "multiply-adds: of convolutions and matrix products, forward, an image: {:.3f} G; backward "
             "takes some twice that\nready: in which order gradients of its parameters are done; bucket: "
             "from 0, "
             "sent in this order; plan: {}",
             1e-9 * static_cast<double>(products), plan.rule);
}

void print_model_summary(const TrainOptions& options) {
  dist::run_ranks(options.launch(), [&](dist::ProcessGroup& group) {
    const std::string text = model_summary(options, group);
    if (group.rank() == 0) write_at_once(STDOUT_FILENO, text + '\n');
  });
}

}  // namespace brigade::apps
