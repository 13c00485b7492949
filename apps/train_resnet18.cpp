// SPDX-License-Identifier: MIT
// apps/train_resnet18.cpp - the whole recipe: data-parallel training of ResNet-18 on CIFAR-10.
// Runs alone, with --ranks N as threads of one process, or under mpirun. Read next: autograd/node.h;
// for the flags, apps/common/train_options.cpp.
#include <atomic>
#include <cmath>
#include <csignal>

#include "apps/common/evaluate.h"
#include "apps/common/interrupt.h"
#include "apps/common/load_data.h"
#include "apps/common/model_summary.h"
#include "apps/common/run_log.h"
#include "apps/common/run_main.h"
#include "apps/common/train_options.h"
#include "apps/common/wrap_model.h"
#include "autograd/engine.h"
#include "autograd/ops/arithmetic.h"
#include "autograd/ops/loss.h"
#include "core/fault_point.h"
#include "core/parallel.h"
#include "data/loader.h"
#include "nn/optim/catalog.h"
#include "nn/optim/ema.h"
#include "nn/optim/schedule.h"
#include "nn/state_dict.h"

namespace brigade::apps {
namespace {

// One optimizer step over `accumulate` batches; returns the mean loss over them and over ranks.
double train_step(const TrainOptions& options, nn::Module& model, data::Loader& loader, dist::Ddp& ddp,
                  optim::Optimizer& optimizer, std::int64_t& epoch) {
  const double share = 1.0 / static_cast<double>(options.accumulate);
  Tensor loss_sum = Tensor::zeros({1}, DType::f64);
  const auto micro_step = [&] {
    const data::Batch batch = loader.next();
    epoch = batch.epoch;
    const Variable loss =
        cross_entropy(model(batch.images), batch.labels, {.label_smoothing = options.label_smoothing}) *
        share;
    *loss_sum.data<double>() += loss.item();
    backward(loss);
  };

  const dist::StepScope recorded(ddp.ledger());  // Layers, optimizer and waiting for data on its timeline.
  ddp.parameters().zero_grad();
  for (std::int64_t i = 1; i < options.accumulate; ++i) {
    const auto local = ddp.no_sync();
    micro_step();
  }
  micro_step();  // Gradients travel from inside this backward and are means over ranks when it returns.
  const dist::Work loss_mean = ddp.group().all_reduce(loss_sum, dist::Reduce::mean, "loss");
  optimizer.step();
  loss_mean.wait();
  return loss_sum.item();
}

// Returns the signal that ended it before its time, or 0.
int train(const TrainOptions& options, const LoadedData& data, Clock::time_point begin,
          dist::ProcessGroup& group) {
  const auto& [train_set, test_set, source] = data.split;
  if (options.threads > 0) set_num_threads(options.threads);
  check_same_flags(options, group);
  const auto files = open_run_files(options, group.rank(), begin);

  const auto model = make_model(options, train_set.classes);
  data::Loader loader(train_set, options.loading(group.rank(), group.size()));
  const auto wrapped = wrap_model(options, *model, train_set, group);
  dist::Ddp& ddp = *wrapped;
  const auto optimizer =
      optim::make_optimizer(options.optimizer, ddp.parameters(),
                            {.lr = options.lr,
                             .momentum = options.momentum,
                             .weight_decay = options.weight_decay,
                             .nesterov = options.nesterov,
                             .decay = options.norm_decay ? optim::DecayOn::all : optim::DecayOn::matrices});
  std::optional<optim::Ema> ema;
  if (options.ema > 0) ema.emplace(ddp.parameters(), options.ema);

  const std::int64_t per_epoch = loader.steps_per_epoch() / options.accumulate;
  BRIGADE_CHECK(per_epoch > 0, "--accumulate: an epoch has only ", loader.steps_per_epoch(), " batches; got ",
                options.accumulate);
  const std::int64_t steps = options.steps > 0 ? options.steps : options.epochs * per_epoch;
  const optim::Schedule schedule =
      optim::make_schedule(options.schedule, {.peak = options.lr, .total_steps = steps});
  const std::int64_t global_batch = group.size() * options.batch_size * options.accumulate;

  RunLog log(options,
             {.data = data.note,
              .parameters = nn::count_parameters(*model),
              .threads = num_threads(),
              .steps = steps,
              .steps_per_epoch = per_epoch,
              .global_batch = global_batch},
             ddp, files.get(), begin);

  const auto evaluate_now = [&](std::int64_t step, std::int64_t epoch) {
    ddp.sync_buffers();
    const auto average = ema ? std::optional(ema->average_scope()) : std::nullopt;
    EvaluationReport report =
        evaluate(*model, test_set, {.batch_size = options.batch_size, .flip = options.eval_flip}, group);
    report.step = step;
    report.epoch = epoch;
    return log.evaluation(report);
  };

  int stopped_by = 0;
  for (std::int64_t step = 1; step <= steps; ++step) {
    const auto step_begin = Clock::now();
    set_fault_step(step);
    if (interrupt_signal() != 0) ddp.propose(dist::Decision::stop);  // The others learn it in this step.
    std::int64_t epoch = 0;
    optimizer->set_lr(schedule(step - 1));
    const double loss = train_step(options, *model, loader, ddp, *optimizer, epoch);
    BRIGADE_CHECK(std::isfinite(loss) || ddp.skipped(), "loss is ", loss, " at step ", step,
                  "; lower --lr, or look at the data");
    if (ema) ema->update();
    log.step({.step = step,
              .steps = steps,
              .epoch = epoch,
              .loss = loss,
              .lr = optimizer->lr(),
              .step_ms = dist::milliseconds(Clock::now() - step_begin),
              .images = global_batch,
              .grad_norm = options.clip_norm > 0 ? std::optional(ddp.grad_norm()) : std::nullopt});
    if (ddp.agreed(dist::Decision::stop) && step < steps) {
      stopped_by = interrupt_signal() != 0 ? interrupt_signal() : SIGTERM;  // Another rank's.
      log.interrupted(step, stopped_by);
      break;
    }
    const bool epoch_ends =
        step % per_epoch == 0 && options.eval_every > 0 && step / per_epoch % options.eval_every == 0;
    if ((epoch_ends || step == steps) && evaluate_now(step, epoch)) break;  // --target-accuracy
  }

  const std::string sha = parameters_sha256(*model, group);
  if (stopped_by == 0 && !options.save.empty() && group.rank() == 0) nn::save(*model, options.save);
  log.finish(sha);
  return stopped_by;
}

}  // namespace
}  // namespace brigade::apps

int main(int argc, char** argv) {
  using namespace brigade::apps;
  const auto begin = brigade::Clock::now();
  return run_main([&] {
    const TrainOptions options = parse_train_options(argc, argv);
    if (options.model_summary) return print_model_summary(options);
    catch_interrupts();
    const LoadedData data = load_data(options);  // Once a process: thread ranks share it.
    std::atomic<int> signal{0};
    brigade::dist::run_ranks(options.launch(), [&](brigade::dist::ProcessGroup& group) {
      if (const int stopped_by = train(options, data, begin, group)) signal = stopped_by;
    });
    if (signal != 0) throw EarlyExit{128 + signal, ""};
  });
}
