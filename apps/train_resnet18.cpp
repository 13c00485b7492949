// SPDX-License-Identifier: MIT
// apps/train_resnet18.cpp - the whole recipe: data-parallel training of ResNet-18 on CIFAR-10.
// Runs alone, with --ranks N as threads of one process, or under mpirun. Read next: autograd/node.h;
// for the flags, apps/common/train_options.cpp.
#include <atomic>
#include <cmath>
#include <csignal>
#include <functional>

#include "apps/common/captured_step.h"
#include "apps/common/device_batches.h"
#include "apps/common/evaluate.h"
#include "apps/common/interrupt.h"
#include "apps/common/late_reports.h"
#include "apps/common/load_data.h"
#include "apps/common/model_summary.h"
#include "apps/common/run_log.h"
#include "apps/common/run_main.h"
#include "apps/common/train_options.h"
#include "apps/common/train_state.h"
#include "apps/common/wrap_model.h"
#include "autograd/engine.h"
#include "autograd/ops/arithmetic.h"
#include "autograd/ops/loss.h"
#include "core/fault_point.h"
#include "core/parallel.h"
#include "data/loader.h"
#include "kernels/late_checks.h"
#include "kernels/ops.h"
#include "nn/optim/catalog.h"
#include "nn/optim/ema.h"
#include "nn/optim/loss_scale.h"
#include "nn/optim/schedule.h"
#include "nn/state_dict.h"

namespace brigade::apps {
namespace {

// From zeroed gradients to the optimizer's update, over the batches that next() returns, on the ranks' device. Returns
// the mean loss over them and over ranks, on that device. `loss_scale`: of f16, else nullptr.
Tensor train_step(const TrainOptions& options, nn::Module& model, dist::Ddp& ddp,
                  optim::LossScale* loss_scale, LateChecks& checks, const std::function<data::Batch()>& next,
                  const std::function<void()>& update) {
  const double share = 1.0 / static_cast<double>(options.accumulate);
  Tensor loss_sum = Tensor::zeros({1}, DType::f64, ddp.group().device());
  const auto micro_step = [&] {
    const data::Batch batch = next();
    const Variable loss =
        cross_entropy(model(batch.images), batch.labels, {.label_smoothing = options.label_smoothing}) *
        share;
    ops::add_(loss_sum, ops::cast(loss.value().view({1}), DType::f64));
    checks.judge();  // Those of the step before.
    checks.fetch();
    backward(loss, loss_scale != nullptr ? loss_scale->backward_of(loss) : BackwardOptions{});
  };

  ddp.parameters().zero_grad();
  for (std::int64_t i = 1; i < options.accumulate; ++i) {
    const auto local = ddp.no_sync();
    micro_step();
  }
  micro_step();  // Gradients travel from inside this backward and are means over ranks when it returns.
  const dist::Work loss_mean = ddp.group().all_reduce(loss_sum, dist::Reduce::mean, "loss");
  update();
  if (loss_scale != nullptr) loss_scale->update(ddp.skipped());
  loss_mean.wait();
  return loss_sum;
}

// Returns the exit code.
int train(const TrainOptions& options, const LoadedData& data, Clock::time_point program_begin,
          dist::ProcessGroup& group) {
  const auto& [train_set, test_set, source] = data.split;
  if (options.threads > 0) set_num_threads(options.threads);
  check_same_flags(options, group);
  const std::optional<Resumed> resumed = find_resumed(options, group);
  const SamplerPosition* const from = resumed ? &resumed->position : nullptr;
  const Course course = make_course(options, train_set.size(), group.rank(), group.size(), from);
  if (resumed) say_if_over(course, group.rank());  // What comes behind the last step may be missing still.
  const auto begin = resumed ? program_begin - resumed->before() : program_begin;
  const auto files = open_run_files(options, group.rank(), begin, lines_to_keep(options, resumed));

  const auto model = make_model(options, train_set.classes);
  model->to(group.device());
  const data::LoaderOptions loading = loading_for(group.device(), course.loading);
  DeviceBatches to_device(group.device());
  const DeviceImages to_images(group.device(), train_set, loading);
  data::Loader loader(train_set, loading);
  const bool same_plan = resumed && resumed->same_plan(options, group.size());
  const auto wrapped = wrap_model(options, *model, train_set, group,
                                  same_plan ? resumed->checkpoint.manifest.bucket_plan : "");
  dist::Ddp& ddp = *wrapped;
  ddp.start_at(course.first);
  const auto optimizer =
      optim::make_optimizer(options.optimizer, ddp.parameters(),
                            {.lr = options.lr,
                             .momentum = options.momentum,
                             .weight_decay = options.weight_decay,
                             .nesterov = options.nesterov,
                             .decay = options.norm_decay ? optim::DecayOn::all : optim::DecayOn::matrices});
  std::optional<optim::Ema> ema;
  if (options.ema > 0) ema.emplace(ddp.parameters(), options.ema);
  std::optional<optim::LossScale> loss_scale;
  if (options.precision == DType::f16) loss_scale.emplace(ddp.parameters());
  optim::LossScale* const scale = loss_scale ? &*loss_scale : nullptr;

  const std::int64_t steps = course.steps;
  const optim::Schedule schedule =
      optim::make_schedule(options.schedule, {.peak = options.lr, .total_steps = course.schedule_steps});
  const std::int64_t global_batch = group.size() * options.batch_size * options.accumulate;

  RunLog log(options,
             {.data = data.note,
              .parameters = nn::count_parameters(*model),
              .threads = num_threads(),
              .steps = steps,
              .steps_per_epoch = course.per_epoch,
              .first_step = course.first,
              .epoch_shift = course.epoch_shift,
              .global_batch = global_batch},
             ddp, files.get(), begin);
  LateReports reports(group.device(), [&](const StepReport& report) {
    // A device tells Ddp later whether it has skipped the step.
    const bool may_skip = group.device() != Device{} && options.non_finite == "skip";
    BRIGADE_CHECK(std::isfinite(report.loss) || ddp.skipped() || may_skip, "loss is ", report.loss,
                  " at step ", report.step, "; lower --lr, or look at the data");
    log.step(report);
  });
  // Whose loss was not finite, and that nothing was updated, Ddp says.
  const auto settle = [&] {
    ddp.settle();
    reports.settle();
  };
  log.before_flush(settle);
  TrainState state(options, {*model, ddp, *optimizer, ema ? &*ema : nullptr, scale}, course, resumed, begin,
                   log);
  // What a device has skipped is known a step later.
  std::int64_t told_skipped = course.first;
  const auto tell_skipped = [&] {
    if (ddp.last_skipped_step() <= told_skipped) return;
    told_skipped = ddp.last_skipped_step();
    const auto now = scale != nullptr ? std::optional(scale->value()) : std::nullopt;
    log.skipped(told_skipped, now);
    BRIGADE_CHECK(!now || *now >= 0x1p-14, "gradients are not finite with any loss scale, down to ", *now,
                  "; lower --lr, or look at the data");
  };

  std::optional<double> accuracy;  // Of the model as it is.
  LateChecks checks(group.device());
  const auto evaluate_now = [&](std::int64_t step, std::int64_t epoch) {
    settle();
    ddp.sync_buffers();
    const auto average = ema ? std::optional(ema->average_scope()) : std::nullopt;
    EvaluationReport report =
        evaluate(*model, test_set, {.batch_size = options.batch_size, .flip = options.eval_flip}, group);
    checks.fetch();
    checks.judge();
    report.step = step;
    report.epoch = epoch;
    accuracy = report.accuracy();
    return log.evaluation(report);
  };

  int stopped_by = 0;
  bool over = false;  // Because of --target-accuracy.
  SamplerPosition position{.global_batch = group.size() * options.batch_size,
                           .accumulate = options.accumulate,
                           .samples = train_set.size()};
  std::optional<CapturedStep> captured;
  bool said_captured = false;
  if (options.cuda_graph) captured.emplace(ddp, *optimizer, checks);
  const auto one_step = [&](std::int64_t step) {
    const dist::StepScope recorded(ddp.ledger());  // Layers, optimizer and waiting for data on its timeline.
    std::int64_t samples = 0;                      // Of this rank.
    const auto load = [&] {
      data::Batch batch = loader.next();
      position.epoch = batch.epoch;
      position.sample = batch.end;
      samples += batch.size();
      ddp.set_weight(batch.uneven ? static_cast<double>(samples) : 1);
      return batch;
    };
    if (!captured)
      return train_step(
          options, *model, ddp, scale, checks, [&] { return to_images(to_device(load())); },
          [&] { state.update(step); });
    std::vector<data::Batch> batches;
    for (std::int64_t i = 0; i < options.accumulate; ++i) batches.push_back(load());
    const Tensor loss = captured->run(batches, [&](const std::vector<data::Batch>& there) {
      std::size_t i = 0;
      return train_step(
          options, *model, ddp, scale, checks, [&] { return to_images(there[i++]); },
          [&] { optimizer->step(); });
    });
    state.updated(step);
    if (!said_captured && captured->captured())
      log.line(str("step ", step, " is captured: from here on a step is one launch"));
    said_captured = captured->captured();
    return loss;
  };
  if (resumed && resumed->evaluation_due) over = evaluate_now(course.first, resumed->position.epoch);
  for (std::int64_t step = course.first + 1; step <= steps && !over; ++step) {
    const auto step_begin = Clock::now();
    set_fault_step(step);
    if (interrupt_signal() != 0) ddp.propose(dist::Decision::stop);  // The others learn it in this step.
    state.before_step();
    position.step = step;
    optimizer->set_lr(schedule(course.schedule_index(step)));
    const Tensor loss = one_step(step);
    if (ema) ema->update();
    const bool has_norm = options.clip_norm > 0 && group.device() == Device{};
    reports.add({.step = step,
                 .steps = steps,
                 .epoch = position.epoch,
                 .lr = optimizer->lr(),
                 .step_ms = dist::milliseconds(Clock::now() - step_begin),
                 .images = global_batch,
                 .grad_norm = has_norm ? std::optional(ddp.grad_norm()) : std::nullopt,
                 .ledger_step = ddp.ledger().last().step,
                 .over = Clock::now()},
                loss, ddp.grad_squares());
    log.step_over();
    tell_skipped();
    const bool stops = ddp.agreed(dist::Decision::stop) && step < steps;
    const bool epoch_ends = course.epoch_ends(step) && options.eval_every > 0 &&
                            (step + course.epoch_shift) / course.per_epoch % options.eval_every == 0;
    accuracy.reset();
    if ((epoch_ends && !stops) || step == steps) over = evaluate_now(step, position.epoch);
    if (step == steps) tell_skipped();
    state.after_step({position, accuracy, stops && epoch_ends, stops || over});
    if (!stops) continue;
    stopped_by = interrupt_signal() != 0 ? interrupt_signal() : SIGTERM;  // Another rank's.
    break;
  }
  settle();
  checks.judge();
  const bool saved = state.finish();
  if (stopped_by != 0) log.interrupted(position.step, stopped_by, saved);

  const std::string sha = parameters_sha256(*model, group);
  group.enter("saving");
  if (stopped_by == 0 && !options.save.empty() && group.rank() == 0) nn::save(*model, options.save);
  log.finish(sha);
  return stopped_by == 0 ? 0 : saved ? kSavedAndStopped : 128 + stopped_by;
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
    std::atomic<int> code{0};
    brigade::dist::run_ranks(options.launch(), [&](brigade::dist::ProcessGroup& group) {
      if (const int of_rank = train(options, data, begin, group)) code = of_rank;
    });
    if (code != 0) throw EarlyExit{code, ""};
  });
}
