// SPDX-License-Identifier: MIT
// apps/common/train_options.cpp - flags become values: what does not go together, and what programs make of them.
#include "apps/common/train_options.h"

#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "apps/common/command_line.h"
#include "apps/common/run_main.h"
#include "apps/common/train_config.h"
#include "apps/common/train_flags.h"
#include "core/choices.h"
#include "core/regular_file.h"
#include "core/runtime.h"
#include "kernels/ops.h"

namespace brigade::apps {
namespace {

bool is_rule(const std::string& name) {
  const auto rules = names(named_rules());
  return std::find(rules.begin(), rules.end(), name) != rules.end();
}

// What --plan names besides rules. Plans are small: a limit keeps a wrong path from filling memory.
std::string read_plan(const std::string& path) {
  constexpr std::int64_t kMaxBytes = 8 << 20;
  std::error_code error;
  std::string rules;
  for (const std::string_view name : names(named_rules())) rules += str(rules.empty() ? "" : ", ", name);
  BRIGADE_CHECK(std::filesystem::exists(path, error), "--plan: must be one of ", rules,
                ", or a plan file; got \"", path, "\", which is neither");
  std::string text = RegularFile(path, str("--plan: ", path, ": "), kMaxBytes).read_rest();
  BRIGADE_CHECK(!text.empty(), "--plan: ", path, " is empty");
  return text;
}

void require_usage(bool condition, const std::string& message) {
  if (!condition) throw CLI::ValidationError(message);
}

void usage_error_if_it_throws(const std::string& flag, const std::function<void()>& check) {
  try {
    check();
  } catch (const Error& error) {
    throw CLI::ValidationError(flag + error.what());
  }
}

// What a single flag's check cannot see.
void finish(Raw& raw, const CLI::App& app) {
  TrainOptions& o = raw.options;
  const DType wanted = raw.precision == "bf16"  ? DType::bf16
                       : raw.precision == "f16" ? DType::f16
                                                : DType::f32;
  // A GPU has instructions for all; who gets none after all computes in this precision, more slowly.
  const bool gpu = o.device != "cpu" && device_count(DeviceType::cuda) > 0;
  o.precision = gpu ? wanted : ops::computed_in(wanted);
  if (o.precision != wanted)
    o.precision_note =
        str("--precision ", wanted, ": this processor has no instructions for it; training in ", o.precision);
  if (o.precision == DType::f16) {
    require_usage(app.count("--non-finite") == 0 || o.non_finite == "skip",
                  "--non-finite: --precision f16 finds its loss scale by skipping steps; drop it");
    require_usage(dist::comm_hook(o.comm_hook).on_device,
                  "--comm-hook: --precision f16 scales gradients by a number that moves, which goes with "
                  "none, bf16 and "
                  "f16 only; got " +
                      o.comm_hook);
    o.non_finite = "skip";
  }
  o.augment = !raw.no_augment;
  o.shuffle = !raw.no_shuffle;
  o.norm_decay = !raw.no_norm_decay;
  if (app.count("--synthetic") > 0) {
    try {
      o.synthetic = raw.synthetic.empty() ? 50'000 : std::stoll(raw.synthetic);
    } catch (const std::exception&) {
      o.synthetic = 0;
    }
    require_usage(
        *o.synthetic > 0 && (raw.synthetic.empty() || raw.synthetic == std::to_string(*o.synthetic)),
        "--synthetic: needs a positive number of images; got " + raw.synthetic);
    require_usage(!o.cifar100, "--synthetic: is made like CIFAR-10; drop --cifar100");
  }
  // CLI11's ranges let "nan" through: it is neither below nor above them.
  for (const auto& [flag, value] :
       std::initializer_list<std::pair<const char*, double>>{{"--noise-std", o.noise_std},
                                                             {"--lr", o.lr},
                                                             {"--momentum", o.momentum},
                                                             {"--weight-decay", o.weight_decay},
                                                             {"--label-smoothing", o.label_smoothing},
                                                             {"--clip-norm", o.clip_norm},
                                                             {"--ema", o.ema},
                                                             {"--target-accuracy", o.target_accuracy},
                                                             {"--timeout", o.timeout},
                                                             {"--save-seconds", o.save_seconds},
                                                             {"--min-bucket-kb", o.min_bucket_kb}})
    require_usage(!std::isnan(value), str(flag, ": needs a number; got nan"));
  if (app.count("--trace-steps") > 0) {
    constexpr std::int64_t kMaxTraceSteps = 100;
    char end = 0;
    const bool pair = std::sscanf(raw.trace_steps.c_str(), "%" SCNd64 ":%" SCNd64 "%c", &o.trace_first,
                                  &o.trace_last, &end) == 2;
    require_usage(pair && 1 <= o.trace_first && o.trace_first <= o.trace_last &&
                      o.trace_last - o.trace_first < kMaxTraceSteps,
                  str("--trace-steps: needs FIRST:LAST, steps from 1 and at most ", kMaxTraceSteps,
                      " of them, like 10:14; got ", raw.trace_steps));
  }
  // As from a shell variable that is not set: silence would mean other data, or no output.
  for (const auto& [flag, value] : {std::pair{"--data", &o.data},
                                    {"--out", &o.out},
                                    {"--save", &o.save},
                                    {"--save-plan", &o.save_plan},
                                    {"--checkpoint-dir", &o.checkpoint_dir},
                                    {"--resume", &o.resume}})
    require_usage(app.count(flag) == 0 || !value->empty(), str(flag, ": needs a path; got an empty one"));
  usage_error_if_it_throws("", [&] {
    if (!is_rule(o.plan)) o.plan_json = read_plan(o.plan);
    static_cast<void>(o.ddp());
    static_cast<void>(o.launch());
  });
  // What saves nothing begins again.
  if (raw.started_again && o.resume == "auto" && o.checkpoint_folder().empty()) o.resume.clear();
  require_usage(
      (o.save_every == 0 && o.save_seconds == 0 && o.resume != "auto") || !o.checkpoint_folder().empty(),
      "--save-every, --save-seconds and --resume auto: need --out or --checkpoint-dir, where "
      "checkpoints are");
  const auto normal = [](const std::string& path) {
    return (std::filesystem::path(path) / "").lexically_normal();
  };
  require_usage(o.checkpoint_dir.empty() || normal(o.checkpoint_dir) != normal(o.out),
                "--checkpoint-dir: must be another directory than that of --out");
  const optim::FlatParameters none{std::vector<nn::NamedParameter>()};
  usage_error_if_it_throws("--comm-hook: ",
                           [&] { static_cast<void>(dist::make_comm_hook(o.comm_hook, none)); });
  usage_error_if_it_throws("--bucket-order: ", [&] {
    if (o.bucket_order != "ready") static_cast<void>(dist::make_order(o.bucket_order, {}));
  });
  require_usage(app.count("--stem") == 0 || o.model.rfind("resnet", 0) == 0,
                "--stem: only for resnet models; got --model " + o.model);
  require_usage(!o.nesterov || (o.optimizer == "sgd" && o.momentum > 0),
                "--nesterov: needs --optimizer sgd and a momentum above 0");
  for (const char* flag : {"--plan", "--bucket-mb", "--first-bucket-mb", "--last-bucket-mb", "--split-large"})
    require_usage(app.count(flag) == 0 || o.sync == "bucketed",
                  str(flag, ": needs --sync bucketed; got --sync ", o.sync));
  require_usage(app.count("--bucket-order") == 0 || o.plan == "size" || o.plan == "auto",
                "--bucket-order: needs --plan size or auto; --plan " + o.plan + " has an order of its own");
  require_usage(!o.split_large || o.plan == "size", "--split-large: needs --plan size; got --plan " + o.plan);
  require_usage(app.count("--first-bucket-mb") == 0 || o.bucket_mb.size() == 1,
                "--first-bucket-mb: drop it; a list in --bucket-mb has the first cap already");
  require_usage(app.count("--divide") == 0 || dist::comm_hook(o.comm_hook).divides,
                "--divide: only for hooks that sum what they are given; got --comm-hook " + o.comm_hook);
  require_usage(o.device != "cuda" || device_count(DeviceType::cuda) > 0,
                "--device: " + device_status(DeviceType::cuda) + "; or choose auto or cpu");
  require_usage(o.device != "cuda" || o.net.empty(),
                "--net: a modelled network carries tensors of the CPU; drop --device cuda");
  require_usage(!o.cuda_graph || o.device != "cpu", "--cuda-graph: needs a GPU; drop --device cpu");
  require_usage(!o.cuda_graph || o.bn_buffers != "sync_bn",
                "--cuda-graph: --bn-buffers sync_bn waits for counts of all ranks in the middle of a step, "
                "which cannot "
                "be recorded; choose another");
  require_usage(!o.deterministic || o.algorithm == "auto",
                "--deterministic: chooses the algorithm; drop --algorithm");
  require_usage(
      app.count("--target-accuracy") == 0 || (o.target_accuracy > 0 && o.eval_every > 0),
      "--target-accuracy: needs a number above 0, and evaluations before the end: --eval-every 1 or more");
  require_usage(app.count("--epochs") == 0 || app.count("--steps") == 0,
                "--epochs and --steps exclude each other");
}

void warn_of_unknown(const Settings& settings) {
  if (dist::launch_environment().rank != 0) return;  // One rank is enough to say it.
  for (const std::string& name : settings.unknown_variables)
    write_at_once(STDERR_FILENO, str("train_resnet18: warning: ", name, " is no flag's variable; ignored\n"));
}

}  // namespace

std::string TrainOptions::checkpoint_folder() const {
  if (!checkpoint_dir.empty()) return checkpoint_dir;
  const bool wanted = save_every > 0 || save_seconds > 0 || !resume.empty();
  return wanted && !out.empty() ? (std::filesystem::path(out) / "checkpoints").string() : "";
}

dist::LaunchOptions TrainOptions::launch() const {
  dist::LaunchOptions options;
  options.backend = backend;
  options.ranks = ranks;
  options.algorithm = deterministic ? "naive" : algorithm;
  options.group.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(timeout * 1000));
  options.on_stuck = end_with_error;
  options.device = device;
  if (net.empty()) return options;
  dist::NetworkModel network = dist::parse_network("--net", net);
  network.seed = seed;
  if (!net_schedule.empty())
    network.links = dist::parse_schedule("--net-schedule", net_schedule, network.links.front().link);
  if (!slow_rank.empty()) network.slow_ranks = {dist::parse_slow_rank("--slow-rank", slow_rank)};
  options.network = network;
  return options;
}

dist::DdpOptions TrainOptions::ddp() const {
  dist::DdpOptions options{.strategy = sync, .hook = comm_hook};
  options.plan.rule = plan_json.empty() ? plan : "file";
  options.plan.json = plan_json;
  options.plan.order = bucket_order;
  options.plan.split = split_large;
  dist::BucketCaps& caps = options.plan.caps;
  for (const double mb : bucket_mb) caps.list.push_back(dist::cap_from_mib("--bucket-mb", mb));
  caps.bytes = caps.list.front();
  if (caps.list.size() == 1) caps.list.clear();
  caps.first_bytes = dist::cap_from_mib("--first-bucket-mb", first_bucket_mb);
  caps.last_bytes = dist::cap_from_mib("--last-bucket-mb", last_bucket_mb);
  caps.min_bytes = min_bucket_kb * 1024;
  options.hook_options.seed = seed;
  using dist::Divide;
  options.hook_options.divide = divide == "before"  ? Divide::before
                                : divide == "after" ? Divide::after
                                : divide == "split" ? Divide::split
                                                    : Divide::automatic;
  options.unused = find_unused ? dist::UnusedParameters::zero : dist::UnusedParameters::error;
  using dist::NonFinite;
  options.non_finite = non_finite == "skip"     ? NonFinite::skip
                       : non_finite == "ignore" ? NonFinite::ignore
                                                : NonFinite::error;
  options.buffers = dist::buffer_policy(bn_buffers);
  options.clip_norm = clip_norm;
  options.check_every = check_every;
  return options;
}

data::LoaderOptions TrainOptions::loading(int rank, int size) const {
  data::AugmentOptions augmentation = augment ? data::standard_augment() : data::AugmentOptions{};
  augmentation.cutout = cutout;
  augmentation.noise_std = noise_std;
  return {.batch_size = batch_size,
          .rank = rank,
          .size = size,
          .seed = seed,
          .shuffle = shuffle,
          .augment = augmentation};
}

std::string TrainOptions::to_json() const {
  const auto limit = [](std::int64_t n) {
    return n == std::numeric_limits<std::int64_t>::max() ? nlohmann::ordered_json()
                                                         : nlohmann::ordered_json(n);
  };
  const auto finite = [](double x) {
    return std::isfinite(x) ? nlohmann::ordered_json(x) : nlohmann::ordered_json();
  };
  const nlohmann::ordered_json json{
      {"data", data},
      {"synthetic", synthetic ? nlohmann::ordered_json(*synthetic) : nlohmann::ordered_json()},
      {"allow_short", allow_short},
      {"cifar100", cifar100},
      {"limit_train", limit(limit_train)},
      {"limit_test", limit(limit_test)},
      {"augment", augment},
      {"shuffle", shuffle},
      {"noise_std", noise_std},
      {"cutout", cutout},
      {"model", model},
      {"stem", stem},
      {"precision", name(precision)},
      {"checkpoint_activations", checkpoint_activations},
      {"init", init},
      {"save", save},
      {"epochs", epochs},
      {"steps", steps},
      {"batch_size", batch_size},
      {"accumulate", accumulate},
      {"optimizer", optimizer},
      {"schedule", schedule},
      {"lr", lr},
      {"momentum", momentum},
      {"weight_decay", weight_decay},
      {"label_smoothing", label_smoothing},
      {"nesterov", nesterov},
      {"norm_decay", norm_decay},
      {"clip_norm", clip_norm},
      {"ema", ema},
      {"seed", seed},
      {"ranks", ranks},
      {"backend", backend},
      {"algorithm", algorithm},
      {"device", device},
      {"cuda_graph", cuda_graph},
      {"threads", threads},
      {"timeout", timeout},
      {"bn_buffers", bn_buffers},
      {"find_unused", find_unused},
      {"non_finite", non_finite},
      {"check_every", check_every},
      {"deterministic", deterministic},
      {"sync", sync},
      {"plan", plan},
      {"bucket_mb", bucket_mb},
      {"first_bucket_mb", first_bucket_mb},
      {"last_bucket_mb", finite(last_bucket_mb)},
      {"min_bucket_kb", min_bucket_kb},
      {"split_large", split_large},
      {"bucket_order", bucket_order},
      {"comm_hook", comm_hook},
      {"divide", divide},
      {"net", net},
      {"net_schedule", net_schedule},
      {"slow_rank", slow_rank},
      {"save_every", save_every},
      {"save_seconds", save_seconds},
      {"keep_last", keep_last},
      {"on_save_failure", on_save_failure},
      {"eval_every", eval_every},
      {"eval_flip", eval_flip},
      {"target_accuracy", target_accuracy}};
  // Paths may be no UTF-8, which JSON has to be.
  return json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

TrainOptions parse_train_options(int argc, char** argv) {
  // Over an empty word that belongs to no flag CLI11 2.3 does not get.
  for (int i = 1; i < argc; ++i)
    if (*argv[i] == 0) throw EarlyExit{2, str("train_resnet18: argument ", i, " is empty; see --help\n")};
  Raw raw;
  raw.options.command = command_line(std::vector<std::string>(argv, argv + argc));
  CLI::App app(
      "Trains a network on CIFAR-10 on one or many ranks.\n"
      "  train_resnet18 --data DIR                    one rank\n"
      "  train_resnet18 --data DIR --ranks 4          four ranks in this process\n"
      "  launch -n 4 -- train_resnet18 --data DIR     four processes\n"
      "  torchrun --nproc_per_node 4 --no_python train_resnet18 --data DIR     the same without MPI\n"
      "launch and scripts/train.sh give mpirun what it wants to be told: by hand --bind-to none, more ranks "
      "than\n"
      "cores --oversubscribe, as root --allow-run-as-root. doctor tells what is wrong with a machine.\n"
      "Each flag is a variable too, --batch-size BRIGADE_BATCH_SIZE, and a line in the file of --config. A "
      "flag\n"
      "comes before its variable, that before the file.\n"
      "Exit codes: 0 done, 1 failed, 2 usage; after SIGINT and SIGTERM, which end a run behind a whole step, "
      "75 "
      "where\n"
      "a checkpoint was saved (--resume auto goes on from it), else 130 and 143. A second signal, more "
      "than a\n"
      "second later, does not wait (130, 143).",
      "train_resnet18");
  for (const auto add :
       {add_config_flags, add_data_flags, add_model_flags, add_optimisation_flags, add_rank_flags,
        add_sync_flags, add_network_flags, add_checkpoint_flags, add_output_flags})
    add(app, raw);
  Settings settings;
  try {
    settings = gather_settings(app, argc, argv);
    warn_of_unknown(settings);
    // CLI11 wants the last one first.
    app.parse(std::vector<std::string>(settings.arguments.rbegin(), settings.arguments.rend()));
    if (!raw.completion.empty()) throw EarlyExit{0, bash_completion(app)};
    const auto resume = settings.sources.find("--resume");
    raw.started_again = resume != settings.sources.end() && resume->second == "BRIGADE_RESUME";
    finish(raw, app);
    if (raw.print_config) throw EarlyExit{0, config_text(app, settings)};
  } catch (const CLI::CallForHelp&) {
    throw EarlyExit{0, app.help()};
  } catch (const CLI::ParseError& error) {
    throw EarlyExit{2, str("train_resnet18: ", with_sources(error.what(), settings), "; see --help\n")};
  }
  return raw.options;
}

}  // namespace brigade::apps
