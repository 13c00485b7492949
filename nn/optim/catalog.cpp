// SPDX-License-Identifier: MIT
// nn/optim/catalog.cpp - the table: a new optimizer is one line here.
#include "nn/optim/catalog.h"

#include <array>

#include "core/choices.h"
#include "nn/optim/adamw.h"
#include "nn/optim/lars.h"
#include "nn/optim/sgd.h"

namespace brigade::optim {

namespace {

using Options = OptimizerOptions;

std::unique_ptr<Optimizer> make_sgd(FlatParameters& parameters, const Options& o) {
  return std::make_unique<Sgd>(
      parameters, o.lr,
      SgdOptions{
          .momentum = o.momentum, .weight_decay = o.weight_decay, .nesterov = o.nesterov, .decay = o.decay});
}

std::unique_ptr<Optimizer> make_adamw(FlatParameters& parameters, const Options& o) {
  return std::make_unique<Adamw>(parameters, o.lr,
                                 AdamwOptions{.weight_decay = o.weight_decay, .decay = o.decay});
}

std::unique_ptr<Optimizer> make_lars(FlatParameters& parameters, const Options& o) {
  // Norm and bias parameters never get a trust ratio here, whatever decay covers elsewhere: LARS needs it so.
  return std::make_unique<Lars>(parameters, o.lr,
                                LarsOptions{.momentum = o.momentum, .weight_decay = o.weight_decay});
}

struct NamedOptimizer {
  std::string_view name;
  std::unique_ptr<Optimizer> (*make)(FlatParameters& parameters, const Options& options);
};
constexpr std::array kOptimizers{NamedOptimizer{"sgd", make_sgd}, NamedOptimizer{"adamw", make_adamw},
                                 NamedOptimizer{"lars", make_lars}};

}  // namespace

std::vector<std::string_view> optimizer_names() { return names(kOptimizers); }

std::unique_ptr<Optimizer> make_optimizer(std::string_view name, FlatParameters& parameters,
                                          const Options& options) {
  return choose("optimizer", name, kOptimizers).make(parameters, options);
}

}  // namespace brigade::optim
