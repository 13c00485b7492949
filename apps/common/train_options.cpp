// SPDX-License-Identifier: MIT
// apps/common/train_options.cpp - flags, their help, and what does not go together. The
// sole user of CLI11 for training.
#include "apps/common/train_options.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/common/run_main.h"
#include "core/choices.h"
#include "models/catalog.h"
#include "nn/optim/catalog.h"
#include "nn/optim/schedule.h"

namespace brigade::apps {
namespace {

// The choices of an option, from the name table that the code itself uses.
template <class Names>
CLI::IsMember one_of(const Names& names) {
  return CLI::IsMember(std::vector<std::string>(names.begin(), names.end()));
}

// CLI11's own checks name the largest double in digits.
CLI::Validator bounded(const char* name, const char* rule, bool (*holds)(double)) {
  return {[rule, holds](std::string& text) {
            double value = 0;
            return CLI::detail::lexical_cast(text, value) && holds(value)
                       ? std::string()
                       : str("must be ", rule, "; got ", text);
          },
          name};
}
CLI::Validator positive() {
  return bounded("POSITIVE", "a positive number",
                 [](double value) { return value > 0 && std::isfinite(value); });
}
CLI::Validator not_negative() {
  return bounded("NONNEGATIVE", "a number of at least 0",
                 [](double value) { return value >= 0 && std::isfinite(value); });
}

// A line a choice, under `what`.
template <class Table>
std::string table_help(std::string_view what, const Table& table) {
  std::string help(what);
  for (const auto& entry : table) help += str("\n    ", entry.name, ": ", entry.description);
  return help;
}

struct Raw {
  TrainOptions options;
  std::string precision = "f32";
  std::string synthetic;  // "" for the bare flag.
  bool no_augment = false, no_shuffle = false, no_norm_decay = false;
};

void add_data(CLI::App& app, Raw& raw) {
  TrainOptions& o = raw.options;
  const auto group = app.add_option_group("Data");
  const auto data = group->add_option(
      "--data", o.data,
      "Directory with cifar-10-batches-bin; default: $BRIGADE_DATA, then the cache folder, else synthetic");
  group
      ->add_option("--synthetic", raw.synthetic,
                   "Train on N generated images (default 50000) instead of real ones")
      ->expected(0, 1)
      ->type_name("[N]")
      ->excludes(data);
  group->add_flag("--allow-short", o.allow_short,
                  "Accept data files with fewer records than the official ones");
  group->add_flag("--cifar100", o.cifar100, "The data set is CIFAR-100 (binary version)");
  group->add_option("--limit-train", o.limit_train, "Use only the first N training images")
      ->check(positive())
      ->type_name("N");
  group->add_option("--limit-test", o.limit_test, "Use only the first N test images")
      ->check(positive())
      ->type_name("N");
  group->add_flag("--no-augment", raw.no_augment, "No random crop and flip");
  group->add_flag("--no-shuffle", raw.no_shuffle, "Images in file order, in every epoch");
  group->add_option("--noise-std", o.noise_std, "Gaussian noise added to normalised pixels")
      ->check(not_negative());
  group
      ->add_option("--cutout", o.cutout, "Side of a random square set to the mean colour, in pixels; 0: none")
      ->check(CLI::Range(0, 32));
}

void add_model(CLI::App& app, Raw& raw) {
  TrainOptions& o = raw.options;
  const auto group = app.add_option_group("Model");
  group->add_option("--model", o.model, "Network")
      ->check(one_of(models::model_names()))
      ->capture_default_str();
  group->add_option("--stem", o.stem, "ResNet's first layers: 3x3 stride 1, or 7x7 stride 2 and max-pooling")
      ->check(CLI::IsMember({"cifar", "imagenet"}))
      ->capture_default_str();
  group->add_option("--precision", raw.precision, "Of activations and products; parameters are f32")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->capture_default_str();
  group->add_flag("--checkpoint-activations", o.checkpoint_activations,
                  "Recompute each block in backward instead of keeping it");
  group->add_option("--init", o.init, "Start from the parameters and buffers in FILE.safetensors")
      ->check(CLI::ExistingFile)
      ->type_name("FILE");
  group->add_option("--save", o.save, "Write parameters and buffers to FILE.safetensors at the end")
      ->type_name("FILE");
}

void add_optimisation(CLI::App& app, Raw& raw) {
  TrainOptions& o = raw.options;
  const auto group = app.add_option_group("Optimisation");
  group->add_option("--epochs", o.epochs, "Passes over the training set")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000}))
      ->capture_default_str();
  group->add_option("--steps", o.steps, "Optimizer steps instead of --epochs; the schedule ends there too")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000'000}));
  group
      ->add_option("--batch-size", o.batch_size,
                   "Images per rank and backward; the global batch is ranks x accumulate times this")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000}))
      ->capture_default_str();
  group->add_option("--accumulate", o.accumulate, "Backwards per optimizer step, synchronised once")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000}))
      ->capture_default_str();
  group->add_option("--optimizer", o.optimizer, "Update rule")
      ->check(one_of(optim::optimizer_names()))
      ->capture_default_str();
  group->add_option("--schedule", o.schedule, "Learning rate over time")
      ->check(one_of(optim::schedule_names()))
      ->capture_default_str();
  group->add_option("--lr", o.lr, "Peak learning rate, for the global batch; not scaled for you")
      ->check(positive())
      ->capture_default_str();
  group->add_option("--momentum", o.momentum, "Of SGD and LARS")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  group->add_option("--weight-decay", o.weight_decay, "On all parameters")
      ->check(not_negative())
      ->capture_default_str();
  group->add_flag("--no-norm-decay", raw.no_norm_decay, "No weight decay on norm parameters and biases");
  group->add_flag("--nesterov", o.nesterov, "Nesterov momentum (SGD)");
  group->add_option("--label-smoothing", o.label_smoothing, "Share of the target spread over all classes")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  group->add_option("--clip-norm", o.clip_norm, "Scale gradients down to this global norm; 0: off")
      ->check(not_negative());
  group->add_option("--ema", o.ema, "Evaluate an average of parameters with this decay; 0: off")
      ->check(CLI::Range(0.0, 1.0));
  group->add_option("--seed", o.seed, "Of initial weights, order and augmentation")
      ->check(not_negative())
      ->capture_default_str();
}

void add_ranks(CLI::App& app, Raw& raw) {
  TrainOptions& o = raw.options;
  const auto group = app.add_option_group("Ranks");
  group->add_option("--ranks", o.ranks, "Ranks as threads of this process; under mpirun the launcher decides")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  group->add_option("--backend", o.backend, "How ranks talk: mpi under mpirun, else threads")
      ->check(one_of(dist::backend_names()))
      ->capture_default_str();
  group->add_option("--algorithm", o.algorithm, "All-reduce: auto is the backend's own")
      ->check(one_of(dist::algorithm_names()))
      ->capture_default_str();
  group->add_option("--device", o.device, "auto takes the best there is")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  group->add_option("--threads", o.threads, "Compute threads per rank; default: cores / ranks on this host")
      ->check(CLI::Range(1, 1024));
  group->add_option("--sync", o.sync, table_help("When gradients travel:", dist::strategies()))
      ->check(one_of(names(dist::strategies())))
      ->capture_default_str();
  group->add_option("--bucket-mb", o.bucket_mb, "Cap of a bucket in MiB; a larger parameter gets its own")
      ->capture_default_str();
  group->add_option("--first-bucket-mb", o.first_bucket_mb, "Cap of the bucket that is sent first, in MiB")
      ->capture_default_str();
  group->add_option("--plan", o.plan, table_help("Where --sync bucketed cuts:", dist::plan_rules()))
      ->check(one_of(names(dist::plan_rules())))
      ->capture_default_str();
  group
      ->add_option(
          "--bucket-order", o.bucket_order,
          "Order in flat memory and of launching: reverse, forward, memory (largest first), norm_first or "
          "random:SEED")
      ->capture_default_str();
  group->add_option("--last-bucket-mb", o.last_bucket_mb,
                    "Cap of the bucket that is sent last, in MiB; default: none of its own");
  group->add_flag("--find-unused", o.find_unused,
                  "Parameters without part in the loss count as zero instead of being an error");
  group->add_option("--timeout", o.timeout, "Seconds to wait for a peer before giving up")
      ->check(CLI::Range(0.001, 1e7))
      ->capture_default_str();
  const auto net =
      group->add_option("--net", o.net, "Model a network: bandwidth and latency of a link, like 1gbit,50us")
          ->type_name("LINK");
  group
      ->add_option("--net-schedule", o.net_schedule, "Change the bandwidth at steps, like 0:10gbit,200:1gbit")
      ->type_name("STEP:BANDWIDTH,...")
      ->needs(net);
  group->add_option("--slow-rank", o.slow_rank, "One rank has only a fraction of the bandwidth, like 2:0.5")
      ->type_name("RANK:FRACTION")
      ->needs(net);
  group->add_flag("--deterministic", o.deterministic,
                  "Add ranks up in rank order, so that results do not depend on bucket sizes with more than "
                  "two ranks either");
}

void add_output(CLI::App& app, Raw& raw) {
  TrainOptions& o = raw.options;
  const auto group = app.add_option_group("Output");
  group->add_option("--out", o.out, "Directory for config.json, metrics.jsonl and the bucket plan")
      ->type_name("DIR");
  group
      ->add_option("--eval-every", o.eval_every, "Evaluate every N epochs and at the end; 0: at the end only")
      ->check(not_negative())
      ->capture_default_str();
  group->add_flag("--print-plan", o.print_plan, "Print the bucket plan");
  group->add_flag("-q,--quiet", o.quiet, "No line per step");
}

void require_usage(bool condition, const std::string& message) {
  if (!condition) throw CLI::ValidationError(message);
}

// What a single flag's check cannot see.
void finish(Raw& raw, const CLI::App& app) {
  TrainOptions& o = raw.options;
  o.precision = raw.precision == "bf16" ? DType::bf16 : DType::f32;
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
                                                             {"--timeout", o.timeout}})
    require_usage(!std::isnan(value), str(flag, ": needs a number; got nan"));
  // As from a shell variable that is not set: silence would mean other data, or no output.
  for (const auto& [flag, value] : {std::pair{"--data", &o.data}, {"--out", &o.out}, {"--save", &o.save}})
    require_usage(app.count(flag) == 0 || !value->empty(), str(flag, ": needs a path; got an empty one"));
  try {
    static_cast<void>(o.ddp());
    static_cast<void>(o.launch());
    static_cast<void>(dist::make_order(o.bucket_order, {}));
  } catch (const Error& error) {
    throw CLI::ValidationError(error.what());
  }
  require_usage(app.count("--stem") == 0 || o.model.rfind("resnet", 0) == 0,
                "--stem: only for resnet models; got --model " + o.model);
  require_usage(!o.nesterov || (o.optimizer == "sgd" && o.momentum > 0),
                "--nesterov: needs --optimizer sgd and a momentum above 0");
  require_usage(!dist::plan_rule(o.plan).replans || o.sync == "bucketed",
                "--plan " + o.plan + ": needs --sync bucketed; got --sync " + o.sync);
  require_usage(o.device != "cuda", "--device: this build has no CUDA support; choose auto or cpu");
  require_usage(!o.deterministic || o.algorithm == "auto",
                "--deterministic: chooses the algorithm; drop --algorithm");
  require_usage(app.count("--epochs") == 0 || app.count("--steps") == 0,
                "--epochs and --steps exclude each other");
}

}  // namespace

dist::LaunchOptions TrainOptions::launch() const {
  dist::LaunchOptions options;
  options.backend = backend;
  options.ranks = ranks;
  options.algorithm = deterministic ? "naive" : algorithm;
  options.group.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(timeout * 1000));
  if (net.empty()) return options;
  dist::NetworkModel network;
  network.seed = seed;
  const dist::Link link = dist::parse_link("--net", net);
  network.links = {{0, link}};
  if (!net_schedule.empty()) network.links = dist::parse_schedule("--net-schedule", net_schedule, link);
  if (!slow_rank.empty()) network.slow_ranks = {dist::parse_slow_rank("--slow-rank", slow_rank)};
  options.network = network;
  return options;
}

dist::DdpOptions TrainOptions::ddp() const {
  return {.strategy = sync,
          .plan = {.rule = plan,
                   .order = bucket_order,
                   .caps = {.bytes = dist::cap_from_mib("--bucket-mb", bucket_mb),
                            .first_bytes = dist::cap_from_mib("--first-bucket-mb", first_bucket_mb),
                            .last_bytes = dist::cap_from_mib("--last-bucket-mb", last_bucket_mb)}},
          .unused = find_unused ? dist::UnusedParameters::zero : dist::UnusedParameters::error};
}

data::AugmentOptions TrainOptions::augmentation() const {
  data::AugmentOptions options = augment ? data::standard_augment() : data::AugmentOptions{};
  options.cutout = cutout;
  options.noise_std = noise_std;
  return options;
}

std::string TrainOptions::to_json() const {
  const auto limit = [](std::int64_t n) {
    return n == std::numeric_limits<std::int64_t>::max() ? nlohmann::ordered_json()
                                                         : nlohmann::ordered_json(n);
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
      {"sync", sync},
      {"bucket_mb", bucket_mb},
      {"first_bucket_mb", first_bucket_mb},
      {"plan", plan},
      {"bucket_order", bucket_order},
      {"find_unused", find_unused},
      {"backend", backend},
      {"algorithm", algorithm},
      {"device", device},
      {"net", net},
      {"net_schedule", net_schedule},
      {"slow_rank", slow_rank},
      {"ranks", ranks},
      {"threads", threads},
      {"timeout", timeout},
      {"deterministic", deterministic},
      {"eval_every", eval_every}};
  return json.dump(1) + "\n";
}

TrainOptions parse_train_options(int argc, char** argv) {
  Raw raw;
  CLI::App app(
      "Trains a network on CIFAR-10 on one or many ranks.\n"
      "  train_resnet18 --data DIR                    one rank\n"
      "  train_resnet18 --data DIR --ranks 4          four ranks in this process\n"
      "  mpirun -np 4 train_resnet18 --data DIR       four processes\n"
      "More ranks than cores: mpirun --oversubscribe. As root: mpirun --allow-run-as-root. scripts/train.sh\n"
      "--ranks 4 gives Open MPI all that it wants.",
      "train_resnet18");
  for (const auto add : {add_data, add_model, add_optimisation, add_ranks, add_output}) add(app, raw);
  try {
    app.parse(argc, argv);
    finish(raw, app);
  } catch (const CLI::CallForHelp&) {
    throw EarlyExit{0, app.help()};
  } catch (const CLI::ParseError& error) {
    throw EarlyExit{2, str("train_resnet18: ", error.what(), "; see --help\n")};
  }
  return raw.options;
}

}  // namespace brigade::apps
