// SPDX-License-Identifier: MIT
// apps/common/run_log.cpp - lines on the screen and lines of JSON.
#include "apps/common/run_log.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

namespace brigade::apps {
namespace {

namespace fs = std::filesystem;

// Hours of training should not end at a mistyped path.
void check_can_save(const char* flag, const fs::path& path) {
  std::error_code ignored;
  const fs::path folder = path.has_parent_path() ? path.parent_path() : ".";
  BRIGADE_CHECK(fs::is_directory(folder, ignored), flag, ": cannot write ", path.string(), "; ",
                folder.string(), " is no directory");
  BRIGADE_CHECK(!fs::is_directory(path, ignored), flag, ": cannot write ", path.string(),
                "; it is a directory");
  BRIGADE_CHECK(access(folder.c_str(), W_OK) == 0, flag, ": cannot write ", path.string(), "; ",
                std::strerror(errno));
}

// JSON has no infinity and no NaN; a step that was skipped, and a model that is lost, have such a loss.
std::string json_number(double x) { return std::isfinite(x) ? fmt::format("{:.9g}", x) : "null"; }

}  // namespace

RunLog::RunLog(const TrainOptions& options, int rank, Clock::time_point begin)
    : options_(options), speaks_(rank == 0), begin_(begin), directory_(options.out) {
  if (!speaks_) return;
  if (!options.out.empty()) open();
  // After open(): the place may be the directory of --out.
  if (!options.save.empty()) check_can_save("--save", options.save);
  if (!options.save_plan.empty()) check_can_save("--save-plan", options.save_plan);
}

void RunLog::open() {
  std::error_code error;
  fs::create_directories(directory_, error);
  BRIGADE_CHECK(!error, "--out: cannot create ", directory_.string(), "; ", error.message());
  const std::string path = directory_ / "metrics.jsonl";
  metrics_.reset(std::fopen(path.c_str(), "w"));
  BRIGADE_CHECK(metrics_ != nullptr, "--out: cannot write ", path, "; ", std::strerror(errno));
}

void RunLog::write(const fs::path& path, const std::string& text, const char* flag) {
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "w"));
  const bool written = file && std::fwrite(text.data(), 1, text.size(), file.get()) == text.size() &&
                       std::fflush(file.get()) == 0;
  BRIGADE_CHECK(written, flag, ": cannot write ", path.string(), "; ", std::strerror(errno));
}

void RunLog::line(const std::string& text) {
  if (!speaks_) return;
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

void RunLog::start(const RunFacts& facts, const dist::Ddp& ddp) {
  if (!speaks_) return;
  const dist::ProcessGroup& group = ddp.group();
  const std::size_t buckets = ddp.plan().buckets.size();
  const auto s = [](auto count) { return count == 1 ? "" : "s"; };
  line(facts.data);
  if (!options_.precision_note.empty()) line(options_.precision_note);
  line(fmt::format("{} ({} parameters, {}), {} rank{} x {} thread{} ({}), sync {}, {} bucket{}",
                   options_.model, facts.parameters, name(options_.precision), group.size(), s(group.size()),
                   facts.threads, s(facts.threads), group.backend(), options_.sync, buckets, s(buckets)));
  line(fmt::format("batch {} a rank, {} in all; {} step{}; {} with {} learning rate, peak {}",
                   options_.batch_size, facts.global_batch, facts.steps, s(facts.steps), options_.optimizer,
                   options_.schedule, options_.lr));
  plan(ddp);
  if (!metrics_) return;
  nlohmann::ordered_json config = nlohmann::ordered_json::parse(options_.to_json());
  config["run"] = {{"ranks", group.size()},
                   {"backend", group.backend()},
                   {"threads", facts.threads},
                   {"data", facts.data},
                   {"parameters", facts.parameters},
                   {"steps", facts.steps},
                   {"global_batch", facts.global_batch}};
  write(directory_ / "config.json", config.dump(1) + "\n", "--out");
}

void RunLog::plan(const dist::Ddp& ddp) {
  if (!speaks_) return;
  const std::string json = dist::plan_to_json(ddp.plan(), ddp.parameter_infos());
  if (metrics_) write(directory_ / "bucket_plan.json", json, "--out");
  if (!options_.save_plan.empty()) write(options_.save_plan, json, "--save-plan");
  if (options_.print_plan && json != printed_plan_)
    line(dist::plan_table(ddp.plan(), ddp.parameter_infos()) + ddp.gradient_memory().text());
  printed_plan_ = json;
}

void RunLog::step(const StepReport& r, const dist::StepRecord& sync) {
  if (!speaks_) return;
  const double rate = 1000.0 * static_cast<double>(r.images) / r.step_ms;
  const double comm_ms = dist::milliseconds(sync.communication()),
               hidden_ms = dist::milliseconds(sync.hidden());
  const double hidden_percent = comm_ms > 0 ? 100 * hidden_ms / comm_ms : 0;
  if (metrics_) {
    // Flushed line by line: a killed run leaves whole lines.
    fmt::print(
        metrics_.get(),
        "{{\"step\": {}, \"epoch\": {}, \"loss\": {}, \"lr\": {:.6g}, \"step_ms\": {:.3f}, "
        "\"images_per_s\": {:.2f}, "
        "\"comm_ms\": {:.3f}, \"hidden_ms\": {:.3f}, \"exposed_ms\": {:.3f}, \"overlap_pct\": {:.1f}}}\n",
        r.step, r.epoch, json_number(r.loss), r.lr, r.step_ms, rate, comm_ms, hidden_ms, comm_ms - hidden_ms,
        hidden_percent);
    BRIGADE_CHECK(std::fflush(metrics_.get()) == 0, "--out: cannot write metrics.jsonl; ",
                  std::strerror(errno));
  }
  if (options_.quiet) return;
  line(
      fmt::format("step {:>5}/{}  epoch {:>3}  loss {:.4f}  lr {:.5f}  {:8.1f} ms  {:7.1f} images/s  comm "
                  "{:6.1f} ms, {:3.0f} % hidden",
                  r.step, r.steps, r.epoch + 1, r.loss, r.lr, r.step_ms, rate, comm_ms, hidden_percent));
}

bool RunLog::evaluation(const EvaluationReport& r) {
  const double accuracy = r.accuracy();
  // Reached is what is printed as reached: 57 of 100 images are 57 %, though 100 * 0.57 is a little less.
  constexpr double kRounding = 1e-9;
  const bool reached = options_.target_accuracy > 0 && 100 * accuracy + kRounding >= options_.target_accuracy;
  if (!speaks_) return reached;
  if (metrics_) {
    fmt::print(metrics_.get(), "{{\"epoch\": {}, \"test_loss\": {}, \"test_accuracy\": {:.9g}}}\n", r.epoch,
               json_number(r.loss), accuracy);
    BRIGADE_CHECK(std::fflush(metrics_.get()) == 0, "--out: cannot write metrics.jsonl; ",
                  std::strerror(errno));
  }
  line(fmt::format("epoch {:>3}  test loss {:.4f}  test accuracy {:.2f} % ({} of {}){}  in {:.1f} s",
                   r.epoch + 1, r.loss, 100 * accuracy, r.correct, r.images,
                   options_.eval_flip ? " with mirror images" : "", r.seconds));
  if (reached) target(r);
  return reached;
}

void RunLog::target(const EvaluationReport& r) {
  const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  const auto whole = static_cast<std::int64_t>(seconds);
  line(fmt::format("target reached: {:.2f} % after epoch {}, {} min {} s", 100 * r.accuracy(), r.epoch + 1,
                   whole / 60, whole % 60));
  if (!metrics_) return;
  fmt::print(metrics_.get(),
             "{{\"target_accuracy\": {:.9g}, \"epoch\": {}, \"reached\": {:.9g}, \"seconds\": {:.3f}}}\n",
             options_.target_accuracy / 100, r.epoch, r.accuracy(), seconds);
  BRIGADE_CHECK(std::fflush(metrics_.get()) == 0, "--out: cannot write metrics.jsonl; ",
                std::strerror(errno));
}

}  // namespace brigade::apps
