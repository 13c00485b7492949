// SPDX-License-Identifier: MIT
// apps/common/run_log.cpp - lines on the screen, and what goes to the files.
#include "apps/common/run_log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>

#include "apps/common/machine_text.h"
#include "apps/report/advice.h"
#include "apps/report/write_report.h"
#include "apps/telemetry/ddp_logging.h"
#include "apps/telemetry/profile.h"
#include "core/parallel.h"
#include "core/runtime.h"

namespace brigade::apps {
namespace {

namespace fs = std::filesystem;

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : "."; }

// Hours of training should not end at a mistyped path.
void check_can_save(const char* flag, const fs::path& path) {
  std::error_code ignored;
  const fs::path folder = folder_of(path);
  BRIGADE_CHECK(fs::is_directory(folder, ignored), flag, ": cannot write ", path.string(), "; ",
                folder.string(), " is no directory");
  BRIGADE_CHECK(!fs::is_directory(path, ignored), flag, ": cannot write ", path.string(),
                "; it is a directory");
  BRIGADE_CHECK(access(folder.c_str(), W_OK) == 0, flag, ": cannot write ", path.string(), "; ",
                std::strerror(errno));
}

const char* s(std::int64_t count) { return count == 1 ? "" : "s"; }

// The first steps are slow: unless asked otherwise the trace begins behind them, where there is room.
std::pair<std::int64_t, std::int64_t> trace_window(const TrainOptions& options, const RunFacts& facts) {
  constexpr std::int64_t kWarmUp = 10, kLength = 5;
  const std::int64_t steps = facts.course.steps, done = facts.course.first;
  BRIGADE_CHECK(options.trace_last == 0 || options.trace_first <= steps, "--trace-steps: the run has ", steps,
                " step", s(steps), "; got ", options.trace_first, ":", options.trace_last);
  if (options.trace_last > 0) return {options.trace_first, std::min(options.trace_last, steps)};
  const std::int64_t first = std::clamp(steps - kLength + 1, done + 1, done + kWarmUp + 1);
  return {first, std::min(first + kLength - 1, steps)};
}

// What is known of a plan before the first step: when gradients are ready, and so what sticks out of backward, is not.
std::string exposure_text(const TrainOptions& options, const dist::Ddp& ddp) {
  const int ranks = ddp.group().size();
  if (ranks == 1) return "one rank: nothing travels";
  std::string text = "exposed time: measured from the first step on";
  if (options.sync == "bucketed" && options.plan == "auto")
    text += ", predicted with each change of the plan";
  const auto network = options.launch().network;
  if (!network) return text;
  std::chrono::nanoseconds time{};
  for (const dist::BucketSpec& bucket : ddp.plan().buckets)
    time += network->time("all_reduce", bucket.bytes, ranks, 0, 0);
  return text + fmt::format(" (of {:.1f} ms a step on the modelled network)", dist::milliseconds(time));
}

}  // namespace

std::unique_ptr<telemetry::RunFiles> open_run_files(const TrainOptions& options, int rank,
                                                    Clock::time_point begin,
                                                    std::optional<std::int64_t> resumed_step) {
  if (rank != 0) return nullptr;
  const auto check_places = [&](bool all) {
    for (const auto& [flag, path] :
         {std::pair{"--save", options.save}, std::pair{"--save-plan", options.save_plan}})
      if (!path.empty() && (all || fs::exists(folder_of(path)))) check_can_save(flag, path);
  };
  BRIGADE_CHECK(options.save.empty() || !fs::exists(options.save) || fs::is_regular_file(options.save) ||
                    fs::is_directory(options.save),
                "--save: cannot write ", options.save, "; it is there, and is no regular file");
  check_places(false);  // Before --out loses what was there …
  std::unique_ptr<telemetry::RunFiles> files;
  if (!options.out.empty())
    files = std::make_unique<telemetry::RunFiles>(telemetry::RunFilesOptions{.directory = options.out,
                                                                             .overwrite = options.overwrite,
                                                                             .begin = begin,
                                                                             .go_on_after = resumed_step});
  check_places(true);  // … and when it is there: the place may be in it.
  return files;
}

void RunLog::Totals::add(const StepReport& report, const dist::StepRecord& sync) {
  ++steps;
  images += report.images;
  if (std::isfinite(report.loss)) loss += report.loss, ++losses;
  step_ms += report.step_ms;
  if (sync.buckets.empty()) return;  // A device repeated the step by itself: nobody knows.
  ++measured;
  comm_ms += dist::milliseconds(sync.communication());
  hidden_ms += dist::milliseconds(sync.hidden());
}

std::string RunLog::speed_text(const Totals& t) const {
  std::string text = fmt::format("{:.1f} images/s", 1000.0 * static_cast<double>(t.images) / t.step_ms);
  if (!travels_ || t.measured == 0) return text;
  const auto n = static_cast<double>(t.measured);
  return text + fmt::format("; comm {:.1f} ms a step, {:.0f} % hidden, {:.1f} ms exposed", t.comm_ms / n,
                            t.comm_ms > 0 ? 100 * t.hidden_ms / t.comm_ms : 0, (t.comm_ms - t.hidden_ms) / n);
}

RunLog::RunLog(const TrainOptions& options, const RunFacts& facts, dist::Ddp& ddp, telemetry::RunFiles* files,
               Clock::time_point begin)
    : options_(options),
      ddp_(ddp),
      files_(files),
      begin_(begin),
      speaks_(ddp.group().rank() == 0),
      travels_(ddp.group().size() > 1),
      course_(facts.course),
      recorder_(ddp, files, begin) {
  const auto [first, last] = trace_window(options, facts);
  ddp.ledger().keep_spans(first - 1, last - 1);  // The ledger counts from 0.
  if (!speaks_) return;
  banner(facts);
  if (files_ != nullptr) config(facts);
  plan();
}

void RunLog::banner(const RunFacts& facts) const {
  const auto say = [&](const std::string& text) { terminal_.line(text); };
  const dist::ProcessGroup& group = ddp_.group();
  const auto buckets = static_cast<std::int64_t>(ddp_.plan().buckets.size());
  say(facts.data);
  if (!options_.precision_note.empty()) say(options_.precision_note);
  say(fmt::format("{} ({} parameters, {}), {} rank{} x {} thread{} ({}), sync {}, {} bucket{}",
                  options_.model, facts.parameters, name(options_.precision), group.size(), s(group.size()),
                  facts.threads, s(facts.threads), group.backend(), options_.sync, buckets, s(buckets)));
  say_device();
  say(fmt::format("batch {} a rank, {} in all; {} step{}; {} with {} learning rate, peak {}",
                  options_.batch_size, facts.course.images_per_step, facts.course.steps,
                  s(facts.course.steps), options_.optimizer, options_.schedule, options_.lr));
  say(fmt::format("{}; {}; plan: {}; {}", processor_text(), launcher_text(), ddp_.plan().rule,
                  exposure_text(options_, ddp_)));
  if (const int wanted = facts.threads * dist::ranks_on_this_host(group.size()); wanted > available_cores())
    say(fmt::format("note: {} threads compute on {} core{}: fewer --threads or ranks are faster", wanted,
                    available_cores(), s(available_cores())));
  if (!options_.verbose || group.size() == 1) return;
  for (std::size_t rank = 1; rank < recorder_.clocks().size(); ++rank)
    say(fmt::format("clock of rank {}: {:+.1f} us from rank 0's, within {:.1f} us", rank,
                    -1e3 * dist::milliseconds(recorder_.clocks()[rank].offset),
                    1e3 * dist::milliseconds(recorder_.clocks()[rank].error)));
}

// Which device, how its tensors travel and why; or why there is none, if one was asked for.
void RunLog::say_device() const {
  const dist::ProcessGroup& group = ddp_.group();
  const Device device = group.device();
  const std::string status = device_status(DeviceType::cuda);
  if (device != Device{})
    terminal_.line(device_text(group));
  else if (options_.device == "auto" && !status.starts_with("this build"))
    terminal_.line("device cpu: " + group.device_choice());
}

void RunLog::config(const RunFacts& facts) {
  const dist::ProcessGroup& group = ddp_.group();
  const auto [first, last] = trace_window(options_, facts);
  nlohmann::ordered_json config = nlohmann::ordered_json::parse(options_.to_json());
  config["run"] = {{"ranks", group.size()},
                   {"backend", group.backend()},
                   {"device", str(group.device())},
                   {"threads", facts.threads},
                   {"data", facts.data},
                   {"parameters", facts.parameters},
                   {"steps", facts.course.steps},
                   {"global_batch", facts.course.images_per_step},
                   {"plan", ddp_.plan().rule},
                   {"command", options_.command},
                   {"processor", processor_text()},
                   {"launcher", launcher_text()},
                   {"date", fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(std::time(nullptr)))}};
  files_->start({.ranks = group.size(),
                 .steps = facts.course.steps,
                 .trace_first = first,
                 .trace_last = last,
                 .buckets = ddp_.plan().buckets.size()},
                // A command may hold bytes that JSON cannot carry.
                config.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

void RunLog::line(const std::string& text) {
  if (speaks_) terminal_.line(text);
}

void RunLog::plan() {
  const std::string json = dist::plan_to_json(ddp_.plan(), ddp_.parameter_infos());
  if (files_ != nullptr) files_->plan(json);
  if (!options_.save_plan.empty()) telemetry::write_whole(options_.save_plan, json, "--save-plan");
  if (options_.print_plan && json != printed_plan_)
    line(dist::plan_table(ddp_.plan(), ddp_.parameter_infos()) + ddp_.gradient_memory().text());
  printed_plan_ = json;
}

void RunLog::plan_change() {
  const auto change = ddp_.last_plan_change();
  if (!change || change->measured_step != ddp_.ledger().last().step) return;
  line(change->text());
  plan();
  if (files_ == nullptr) return;
  const nlohmann::ordered_json event{{"event", "plan"},
                                     {"step", change->step + 1},
                                     {"plan_epoch", ddp_.ledger().last().plan_epoch},
                                     {"buckets", change->buckets},
                                     {"text", change->text()}};
  files_->event(event.dump());
}

void RunLog::step(const StepReport& r) {
  recorder_.add(r);
  if (!speaks_) return;
  const dist::StepRecord* const known = ddp_.ledger().find(r.ledger_step);
  const dist::StepRecord& sync = known != nullptr ? *known : ddp_.ledger().last();
  run_.add(r, sync);
  epoch_.add(r, sync);
  if (terminal_.live() && !options_.quiet && !options_.verbose) {
    status(r, sync);
  } else if (!options_.quiet) {
    std::string text =
        fmt::format("step {:>5}/{}  epoch {:>3}  loss {:.4f}  lr {:.5f}  {:8.1f} ms  {:7.1f} images/s",
                    r.step, r.steps, r.epoch + 1, r.loss, r.lr, r.step_ms, r.images_per_s());
    if (travels_ && !sync.buckets.empty())
      text += fmt::format("  comm {:6.1f} ms, {:3.0f} % hidden", dist::milliseconds(sync.communication()),
                          100 * sync.overlap());
    line(text);
  }
  if (!course_.epoch_ends(r.step)) return;
  line(fmt::format("epoch {:>3}  mean loss {:.4f}  {} step{} in {}  {}", r.epoch + 1,
                   epoch_.loss / static_cast<double>(epoch_.losses), epoch_.steps, s(epoch_.steps),
                   duration_text(1e-3 * epoch_.step_ms), speed_text(epoch_)));
  epoch_ = {};
}

void RunLog::step_over() {
  recorder_.exchange();
  if (speaks_) plan_change();
}

// The steps and evaluations that are left, as the last ones went.
double RunLog::left_s(const StepReport& r) const {
  const std::int64_t evaluations =
      evaluations_ahead(r.step, r.steps, options_.eval_every * course_.per_epoch);
  return 1e-3 * smooth_ms_ * static_cast<double>(r.steps - r.step) +
         evaluation_s_ * static_cast<double>(evaluations);
}

void RunLog::status(const StepReport& r, const dist::StepRecord& sync) {
  constexpr double kNewest = 0.1;
  smooth_ms_ = smooth_ms_ == 0 ? r.step_ms : (1 - kNewest) * smooth_ms_ + kNewest * r.step_ms;
  // The most wanted first: what does not fit is left out from the end.
  constexpr int kBar = 22;
  std::vector<std::string> fields{
      fmt::format("epoch {} {} {}/{}", r.epoch + 1, progress_bar(r.step, r.steps, kBar), r.step, r.steps),
      "ETA " + duration_text(left_s(r)),
      fmt::format("{:.0f} images/s", 1000.0 * static_cast<double>(r.images) / smooth_ms_),
      fmt::format("loss {:.3f}", r.loss)};
  if (accuracy_) fields.push_back(fmt::format("accuracy {:.2f} %", *accuracy_));
  if (travels_ && !sync.buckets.empty()) {
    fields.push_back(fmt::format("comm {:.1f} ms", dist::milliseconds(sync.communication())));
    fields.push_back(fmt::format("{:.0f} % hidden", 100 * sync.overlap()));
  }
  terminal_.status(fields, r.step == r.steps);
}

bool RunLog::evaluation(const EvaluationReport& r) {
  recorder_.flush();
  const double accuracy = r.accuracy();
  // Reached is what is printed as reached: 57 of 100 images are 57 %, though 100 * 0.57 is a little less.
  constexpr double kRounding = 1e-9;
  const bool reached = options_.target_accuracy > 0 && 100 * accuracy + kRounding >= options_.target_accuracy;
  if (!speaks_) return reached;
  accuracy_ = 100 * accuracy;
  evaluation_s_ = r.seconds;
  if (files_ != nullptr) files_->evaluation(r);
  line(fmt::format("epoch {:>3}  test loss {:.4f}  test accuracy {:.2f} % ({} of {}){}  in {:.1f} s",
                   r.epoch + 1, r.loss, 100 * accuracy, r.correct, r.images,
                   options_.eval_flip ? " with mirror images" : "", r.seconds));
  if (reached) target(r);
  return reached;
}

void RunLog::target(const EvaluationReport& r) {
  const auto whole = static_cast<std::int64_t>(seconds());
  line(fmt::format("target reached: {:.2f} % after epoch {}, {} min {} s", 100 * r.accuracy(), r.epoch + 1,
                   whole / 60, whole % 60));
  if (files_ == nullptr) return;
  files_->event(fmt::format(
      R"({{"event": "target", "target_accuracy": {:.9g}, "epoch": {}, "reached": {:.9g}, "seconds": {:.3f}}})",
      options_.target_accuracy / 100, r.epoch, r.accuracy(), seconds()));
}

void RunLog::skipped(std::int64_t step, const std::string& reason, std::optional<double> loss_scale) {
  if (!speaks_) return;
  line(fmt::format("step {} skipped: {}{}", step, reason,
                   loss_scale ? fmt::format("; the loss scale is {:g} now", *loss_scale) : ""));
  event(fmt::format(R"({{"event": "skipped", "step": {}, "reason": {}{}}})", step,
                    nlohmann::json(reason).dump(),
                    loss_scale ? fmt::format(R"(, "loss_scale": {:.9g})", *loss_scale) : ""));
}

void RunLog::event(const std::string& json) {
  if (files_ != nullptr) files_->event(json);
}

void RunLog::interrupted(std::int64_t step, int signal, bool saved) {
  const char* const name = signal == SIGINT ? "SIGINT" : "SIGTERM";
  line(fmt::format("{}: stopped after step {}{}{}", name, step,
                   saved ? ", saved; --resume auto goes on from here" : "",
                   options_.save.empty() ? "" : "; nothing goes to --save, as the run is not over"));
  if (files_ != nullptr)
    files_->event(fmt::format(R"({{"event": "interrupted", "step": {}, "signal": "{}"}})", step, name));
}

// The page is made from the files, as bin/report makes it. A run that has succeeded does not fail for want of it.
std::string RunLog::report() {
  if (files_ == nullptr) return "";
  const fs::path& folder = files_->directory();
  try {
    brigade::report::write_report(folder, folder / "report.html");
    return str("advice (from medians): ",
               brigade::report::advice(brigade::report::summarize(brigade::report::read_run(folder))));
  } catch (const std::exception& error) {
    return str("no report.html: ", error.what());
  }
}

void RunLog::profile() {
  constexpr std::int64_t kLossBytes = 8;  // Summed over ranks beside the optimizer.
  telemetry::write_profile(
      files_->directory(),
      telemetry::take_profile(ddp_, {.model = options_.model,
                                     .strategy = options_.sync,
                                     .plan = options_.plan_json.empty() ? options_.plan : "file",
                                     .threads = num_threads(),
                                     .images = options_.batch_size * options_.accumulate,
                                     .algorithm = options_.deterministic ? "naive" : options_.algorithm,
                                     .network = options_.launch().network,
                                     .trailing_bytes = kLossBytes}));
}

void RunLog::finish(const std::string& parameters_sha256) {
  recorder_.flush();
  if (!speaks_) return;
  terminal_.clear();
  if (ddp_.ledger().steps().empty())
    return line("params sha256 " + parameters_sha256);  // It was over before.
  plan();
  if (files_ != nullptr) {
    files_->finish(ddp_.ledger().timeline());
    profile();
    telemetry::write_ddp_logging(files_->directory(), ddp_, options_.model);
  }
  const std::string advice = report();
  line(fmt::format("done in {}: {}on average {}", duration_text(seconds()),
                   accuracy_ ? fmt::format("test accuracy {:.2f} %; ", *accuracy_) : "", speed_text(run_)));
  if (const std::string late = recorder_.late().text(); !late.empty()) line(late);
  if (!advice.empty()) line(advice);
  line("params sha256 " + parameters_sha256);
  line(files_ != nullptr ? fmt::format("output in {}", options_.out)
                         : "no files: --out DIR keeps figures, trace and a report with advice");
}

}  // namespace brigade::apps
