// SPDX-License-Identifier: MIT
// models/catalog.cpp - the table: a new model is one line here.
#include "models/catalog.h"

#include "core/choices.h"
#include "models/mlp.h"
#include "models/resnet.h"

namespace brigade::models {

namespace {

struct NamedStem {
  std::string_view name;
  Stem stem;
};
constexpr std::array kStems{NamedStem{"cifar", Stem::cifar}, NamedStem{"imagenet", Stem::imagenet}};

std::unique_ptr<nn::Module> make_resnet(const ModelOptions& options, const std::array<int, 4>& blocks) {
  return std::make_unique<ResNet>(ResNetOptions{.blocks = blocks,
                                                .classes = options.classes,
                                                .stem = choose("stem", options.stem, kStems).stem,
                                                .precision = options.precision,
                                                .checkpoint_activations = options.checkpoint_activations});
}

std::unique_ptr<nn::Module> make_resnet18(const ModelOptions& options) {
  return make_resnet(options, {2, 2, 2, 2});
}
std::unique_ptr<nn::Module> make_resnet34(const ModelOptions& options) {
  return make_resnet(options, {3, 4, 6, 3});
}

std::unique_ptr<nn::Module> make_mlp(const ModelOptions& options) {
  return std::make_unique<Mlp>(MlpOptions{.inputs = numel(options.image),
                                          .classes = options.classes,
                                          .precision = options.precision,
                                          .checkpoint_activations = options.checkpoint_activations});
}

struct NamedModel {
  std::string_view name;
  std::unique_ptr<nn::Module> (*make)(const ModelOptions& options);
};
constexpr std::array kModels{NamedModel{"resnet18", make_resnet18}, NamedModel{"resnet34", make_resnet34},
                             NamedModel{"mlp", make_mlp}};

}  // namespace

std::vector<std::string_view> model_names() { return names(kModels); }
std::vector<std::string_view> stem_names() { return names(kStems); }

std::unique_ptr<nn::Module> make_model(std::string_view name, const ModelOptions& options) {
  return choose("model", name, kModels).make(options);
}

}  // namespace brigade::models
