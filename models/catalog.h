// SPDX-License-Identifier: MIT
// models/catalog.h - image classifiers by name, for programs.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "nn/module.h"

namespace brigade::models {

/// What a program's flags can say; a model takes what applies to it.
struct ModelOptions {
  std::int64_t classes = 10;
  std::string stem = "cifar";  ///< resnet: cifar or imagenet.
  DType precision = DType::f32;
  bool checkpoint_activations = false;
  Shape image = {3, 32, 32};  ///< mlp: [C, H, W]. A resnet takes any size.
};

/// resnet18, resnet34, mlp
std::vector<std::string_view> model_names();
/// cifar, imagenet
std::vector<std::string_view> stem_names();

/// A model of images [N, C, H, W] with logits f32 [N, classes], initialised from default_generator().
/// Throws Error listing the choices for an unknown name or stem.
std::unique_ptr<nn::Module> make_model(std::string_view name, const ModelOptions& options = {});

}  // namespace brigade::models
