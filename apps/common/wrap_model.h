// SPDX-License-Identifier: MIT
// apps/common/wrap_model.h - from flags to a model, its Ddp and its optimizer: what stands between --model, --sync,
// --plan, --bn-buffers … and the library. Read next: dist/ddp.h.
#pragma once

#include <memory>

#include "apps/common/train_options.h"
#include "data/dataset.h"
#include "dist/ddp.h"
#include "nn/module.h"
#include "nn/optim/ema.h"
#include "nn/optim/loss_scale.h"
#include "nn/optim/optimizer.h"

namespace brigade::apps {

/// The network of --model and its flags, with initial values from --seed or --init.
std::unique_ptr<nn::Module> make_model(const TrainOptions& options, std::int64_t classes);

/// Throws Error on all ranks, naming the first difference, if ranks were started with different flags: with another
/// learning rate they would drift apart, with another network they would wait for each other in vain. Where data lies,
/// where files go and how many threads compute may differ. Collective; blocks.
void check_same_flags(const TrainOptions& options, dist::ProcessGroup& group);

/// Collective; blocks. With --bucket-order ready it runs one forward and backward on a batch of `images` first;
/// with --bn-buffers sync_bn it makes the model's batch norms combine their statistics over `group`, which must
/// outlive them. `saved_plan`: JSON of a bucket plan to start with instead.
std::unique_ptr<dist::Ddp> wrap_model(const TrainOptions& options, nn::Module& model,
                                      const data::Dataset& images, dist::ProcessGroup& group,
                                      const std::string& saved_plan = {});

/// What --optimizer, --ema and --precision ask for; the latter two may be nullptr.
std::unique_ptr<optim::Optimizer> make_optimizer(const TrainOptions& options,
                                                 optim::FlatParameters& parameters);
std::unique_ptr<optim::Ema> make_ema(const TrainOptions& options, optim::FlatParameters& parameters);
std::unique_ptr<optim::LossScale> make_loss_scale(const TrainOptions& options,
                                                  optim::FlatParameters& parameters);

}  // namespace brigade::apps
