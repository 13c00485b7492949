// SPDX-License-Identifier: MIT
// tests/apps/stuck_rank.cpp - trains an MLP on two ranks, of which rank 1 sleeps for ever at the place that the first
// argument names: init (before it joins the job), first (before its first collective), backward (in the middle of the
// second one), exit (when all is done, before it leaves the group), or nowhere. Second argument: the time-out in
// seconds. Run by stuck_test.py.
#include <cstdlib>
#include <string>
#include <thread>

#include "apps/common/run_main.h"
#include "autograd/engine.h"
#include "autograd/ops/loss.h"
#include "data/loader.h"
#include "data/synthetic.h"
#include "dist/ddp.h"
#include "dist/launch.h"
#include "models/catalog.h"

using namespace brigade;

namespace {

[[noreturn]] void sleep_for_ever() {
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

void train(dist::ProcessGroup& group, const std::string& stuck_at) {
  const auto stops_at = [&](const char* place) { return group.rank() == 1 && stuck_at == place; };
  if (stops_at("init") || stops_at("first")) sleep_for_ever();
  const auto model = models::make_model("mlp");
  dist::Ddp ddp(model->named_parameters(), model->named_buffers(), group);
  int step = 0;
  // The last layer's gradients are ready by then, the first one's are not.
  for (nn::NamedParameter& parameter : model->named_parameters())
    if (parameter.name == "layers.2.weight" && stops_at("backward"))
      parameter.variable.register_post_accumulate_hook([&step](Variable&) {
        if (step == 2) sleep_for_ever();
      });
  const data::Split images = data::make_synthetic({.train = 16, .test = 1});
  data::Loader loader(images.train, {.batch_size = 2, .rank = group.rank(), .size = group.size()});
  for (step = 1; step <= 3; ++step) {
    const data::Batch batch = loader.next();
    ddp.parameters().zero_grad();
    const Variable loss = cross_entropy((*model)(batch.images), batch.labels);
    backward(loss);
  }
  if (stops_at("exit")) sleep_for_ever();
}

}  // namespace

int main(int argc, char** argv) {
  return apps::run_main([&] {
    if (argc != 3) throw apps::EarlyExit{2, "usage: stuck_rank init|first|backward|exit|nowhere SECONDS\n"};
    const std::string stuck_at = argv[1];
    dist::LaunchOptions launch;
    launch.ranks = 2;
    launch.group.timeout = std::chrono::milliseconds(static_cast<int>(1000 * std::strtod(argv[2], nullptr)));
    launch.on_stuck = apps::end_with_error;
    if (dist::launch_environment().rank == 1 && stuck_at == "init") sleep_for_ever();
    dist::run_ranks(launch, [&](dist::ProcessGroup& group) { train(group, stuck_at); });
  });
}
