// SPDX-License-Identifier: MIT
// apps/train_resnet18.cpp - the whole recipe: data-parallel training of ResNet-18 on CIFAR-10.
// Runs alone, with --ranks N as threads of one process, or under mpirun. Read next: autograd/node.h;
// for the flags, apps/common/train_options.cpp.
#include <atomic>
#include <csignal>

#include "apps/common/evaluate.h"
#include "apps/common/interrupt.h"
#include "apps/common/load_data.h"
#include "apps/common/model_summary.h"
#include "apps/common/run_main.h"
#include "apps/common/step_reports.h"
#include "apps/common/step_runner.h"
#include "apps/common/wrap_model.h"
#include "autograd/engine.h"
#include "autograd/ops/arithmetic.h"
#include "autograd/ops/loss.h"
#include "core/fault_point.h"
#include "core/parallel.h"
#include "kernels/ops.h"
#include "nn/optim/ema.h"
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
  const data::Dataset &train_set = data.split.train, &test_set = data.split.test;
  if (options.threads > 0) set_num_threads(options.threads);
  check_same_flags(options, group);
  const std::optional<Resumed> resumed = find_resumed(options, group);
  const Course course = make_course(options, train_set.size(), group.rank(), group.size(),
                                    resumed ? &resumed->position : nullptr);
  if (resumed) say_if_over(course, group.rank());  // What comes behind the last step may be missing still.
  const auto begin = resumed ? program_begin - resumed->before() : program_begin;

  const auto model = make_model(options, train_set.classes);
  model->to(group.device());
  const auto wrapped =
      wrap_model(options, *model, train_set, group, resumed ? resumed->plan_for(options, group.size()) : "");
  dist::Ddp& ddp = *wrapped;
  ddp.start_at(course.first);
  const auto optimizer = make_optimizer(options, ddp.parameters());
  const optim::Schedule schedule =
      optim::make_schedule(options.schedule, {.peak = options.lr, .total_steps = course.schedule_steps});
  const auto ema = make_ema(options, ddp.parameters());
  const auto loss_scale = make_loss_scale(options, ddp.parameters());

  LateChecks checks(group.device());
  StepRunner runner(options, train_set, course, ddp, *optimizer, checks);
  // Not before all of the above is well: an earlier run's files may have to go.
  const auto files = open_run_files(options, group.rank(), begin, lines_to_keep(options, resumed));
  RunLog log(options, {data.note, nn::count_parameters(*model), num_threads(), course}, ddp, files.get(),
             begin);
  StepReports reports(options, course, ddp, loss_scale.get(), log);
  TrainState state(options, {*model, ddp, *optimizer, ema.get(), loss_scale.get(), data.split}, course,
                   resumed, begin, log);

  std::optional<double> accuracy;  // Of the model as it is.
  const auto evaluate_now = [&](const SamplerPosition& now) {
    reports.settle();
    ddp.sync_buffers();
    const auto average = ema ? std::optional(ema->average_scope()) : std::nullopt;
    const EvaluationReport report = evaluate(*model, test_set, options, now, group);
    accuracy = report.accuracy();
    return log.evaluation(report);
  };

  int stopped_by = 0;  // The signal.
  bool over = false;   // Because of --target-accuracy.
  if (resumed && resumed->evaluation_due) over = evaluate_now(resumed->position);
  for (std::int64_t step = course.first + 1; step <= course.steps && !over && stopped_by == 0; ++step) {
    const auto step_begin = Clock::now();
    set_fault_step(step);
    if (interrupt_signal() != 0) ddp.propose(dist::Decision::stop);  // The others learn it in this step.
    if (interrupt_signal() == SIGINT) ddp.propose(dist::Decision::interrupted);
    state.before_step();
    optimizer->set_lr(schedule(course.schedule_index(step)));
    const Tensor loss = runner.run(step, state, log, [&](const auto& next, const auto& update) {
      return train_step(options, *model, ddp, loss_scale.get(), checks, next, update);
    });
    if (ema) ema->update();
    const SamplerPosition& position = runner.position();
    reports.add(step, position.epoch, optimizer->lr(), step_begin, loss);
    const bool stops = ddp.agreed(dist::Decision::stop) && step < course.steps;
    const bool evaluates = course.evaluates(step, options.eval_every);
    accuracy.reset();
    if (evaluates && !stops) over = evaluate_now(position);
    state.after_step({position, accuracy, stops && evaluates, stops || over});
    if (stops) stopped_by = ddp.agreed(dist::Decision::interrupted) ? SIGINT : SIGTERM;
  }
  reports.settle();
  checks.judge();
  const bool saved = state.finish();
  if (stopped_by != 0) log.interrupted(runner.position().step, stopped_by, saved);

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
