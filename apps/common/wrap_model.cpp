// SPDX-License-Identifier: MIT
// apps/common/wrap_model.cpp - see the header.
#include "apps/common/wrap_model.h"

#include "autograd/engine.h"
#include "autograd/ops/loss.h"
#include "data/loader.h"
#include "dist/ready_order.h"
#include "dist/sum_over_ranks.h"
#include "nn/batch_norm.h"

namespace brigade::apps {

std::unique_ptr<dist::Ddp> wrap_model(const TrainOptions& options, nn::Module& model,
                                      const data::Dataset& images, dist::ProcessGroup& group) {
  dist::DdpOptions ddp = options.ddp();
  if (ddp.buffers == dist::BufferPolicy::sync_bn)
    nn::set_statistics_combiner(model,
                                [&](const Variable& sums) { return dist::sum_over_ranks(sums, group); });
  if (options.bucket_order == "ready") {
    const data::Batch batch = data::Loader(images, options.loading(group.rank(), group.size())).next();
    ddp.plan.observed =
        dist::observe_ready_order(model.named_parameters(), model.named_buffers(), group,
                                  [&] { backward(cross_entropy(model(batch.images), batch.labels)); });
  }
  return std::make_unique<dist::Ddp>(model.named_parameters(), model.named_buffers(), group, ddp);
}

}  // namespace brigade::apps
