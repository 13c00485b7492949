// SPDX-License-Identifier: MIT
// apps/minimal.cpp - data-parallel training in one screen: what the README shows, complete.
// Takes the number of ranks (2). Read next: apps/train_resnet18.cpp.
#include <cstdio>
#include <cstdlib>

#include "autograd/engine.h"
#include "autograd/ops/loss.h"
#include "data/loader.h"
#include "data/synthetic.h"
#include "dist/ddp.h"
#include "dist/launch.h"
#include "models/catalog.h"
#include "nn/optim/sgd.h"

using namespace brigade;

int main(int argc, char** argv) {
  const data::Split images = data::make_synthetic({.train = 2048, .test = 16});
  dist::LaunchOptions launch;
  launch.ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  if (launch.ranks < 1) {  // --help too: atoi makes 0 of words.
    std::fprintf(stderr, "usage: minimal [RANKS]\n");
    return 2;
  }

  dist::run_ranks(launch, [&](dist::ProcessGroup& group) {
    const auto model = models::make_model("mlp");
    dist::Ddp ddp(model->named_parameters(), model->named_buffers(), group);
    optim::Sgd optimizer(ddp.parameters(), 0.01, {.momentum = 0.9});
    data::Loader loader(images.train, {.batch_size = 32, .rank = group.rank(), .size = group.size()});
    for (int step = 1; step <= 50; ++step) {
      const data::Batch batch = loader.next();
      ddp.parameters().zero_grad();
      const Variable loss = cross_entropy((*model)(batch.images), batch.labels);
      backward(loss);  // Gradients travel from inside this call and are means over ranks when it returns.
      optimizer.step();
      if (group.rank() == 0 && step % 10 == 0)
        std::printf("step %d, loss on rank 0: %.4f\n", step, loss.item());
    }
  });
}
