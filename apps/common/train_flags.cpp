// SPDX-License-Identifier: MIT
// apps/common/train_flags.cpp - flags about data, model, optimisation and output. Read next:
// apps/common/train_rank_flags.cpp.
#include "apps/common/train_flags.h"

#include "models/catalog.h"
#include "nn/optim/catalog.h"
#include "nn/optim/schedule.h"

namespace brigade::apps {

void add_config_flags(CLI::App& app, Raw& raw) {
  const auto group = app.add_option_group("Configuration");
  group
      ->add_option("--config", raw.config,
                   "TOML with a line like batch-size = 64 a flag; flags and BRIGADE_BATCH_SIZE=64 in the "
                   "environment come before it")
      ->type_name("FILE");
  group->add_flag("--print-config", raw.print_config,
                  "Print the configuration in effect as such a file, and end");
  group->add_flag("--model-summary", raw.options.model_summary,
                  "Print a table of layers with their shapes, work and buckets, and end");
  group->add_option("--completion", raw.completion, "Print a script that completes flags, and end")
      ->check(CLI::IsMember({"bash"}));
  for (CLI::Option* option : group->get_options()) option->configurable(false);  // Not in a file.
}

void add_data_flags(CLI::App& app, Raw& raw) {
  TrainOptions& o = raw.options;
  const auto group = app.add_option_group("Data");
  const auto data = group->add_option(
      "--data", o.data,
      "Directory with cifar-10-batches-bin; default: $BRIGADE_DATA, then the cache folder, else synthetic");
  data->type_name("DIR");
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

void add_model_flags(CLI::App& app, Raw& raw) {
  TrainOptions& o = raw.options;
  const auto group = app.add_option_group("Model");
  group->add_option("--model", o.model, "Network")
      ->check(one_of(models::model_names()))
      ->capture_default_str();
  group->add_option("--stem", o.stem, "ResNet's first layers: 3x3 stride 1, or 7x7 stride 2 and max-pooling")
      ->check(CLI::IsMember({"cifar", "imagenet"}))
      ->capture_default_str();
  group
      ->add_option(
          "--precision", raw.precision,
          "Of activations and products; parameters are f32. f16 is for GPUs (the CPU then says so and "
          "trains in f32): its loss is scaled by a number that moves, and a step whose gradients overflow is "
          "skipped on all ranks")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}))
      ->capture_default_str();
  group->add_flag("--checkpoint-activations", o.checkpoint_activations,
                  "Recompute each block in backward instead of keeping it");
  group->add_option("--init", o.init, "Start from the parameters and buffers in FILE.safetensors")
      ->check(CLI::ExistingFile)
      ->type_name("FILE");
  group->add_option("--save", o.save, "Write parameters and buffers to FILE.safetensors at the end")
      ->type_name("FILE");
}

void add_optimisation_flags(CLI::App& app, Raw& raw) {
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
      ->check(CLI::Range(0.0, 0.999999));
  group->add_option("--seed", o.seed, "Of initial weights, order and augmentation")
      ->check(not_negative())
      ->capture_default_str();
}

void add_checkpoint_flags(CLI::App& app, Raw& raw) {
  TrainOptions& o = raw.options;
  const auto group = app.add_option_group("Checkpoints");
  group->add_option("--save-every", o.save_every, "Save a checkpoint every N steps; 0: not")
      ->check(not_negative())
      ->type_name("N");
  group->add_option("--save-seconds", o.save_seconds, "Save a checkpoint every S seconds; 0: not")
      ->check(not_negative())
      ->type_name("S");
  group
      ->add_option(
          "--checkpoint-dir", o.checkpoint_dir,
          "Folder of checkpoints, which all ranks see; default: checkpoints in the folder of --out, if "
          "--save-every, --save-seconds or --resume is given. A run that has one also saves at its end, "
          "behind SIGINT and SIGTERM, and at each best test "
          "accuracy")
      ->type_name("DIR");
  group
      ->add_option("--keep-last", o.keep_last, "Keep the newest N checkpoints, and the best by test accuracy")
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("N")
      ->capture_default_str();
  group
      ->add_option(
          "--resume", o.resume,
          "Go on from a checkpoint: from DIR, one of them or a folder of them, or auto: from the newest "
          "complete one of --checkpoint-dir, and from the beginning if there is none")
      ->type_name("auto|DIR");
  group
      ->add_option(
          "--on-save-failure", o.on_save_failure,
          "When a checkpoint cannot be written: go-on warns, and tries again when the next is due; stop "
          "ends the run. The last one of a run must succeed: exit code 1")
      ->check(CLI::IsMember({"go-on", "stop"}))
      ->capture_default_str();
}

void add_output_flags(CLI::App& app, Raw& raw) {
  TrainOptions& o = raw.options;
  const auto group = app.add_option_group("Output");
  const auto out = group->add_option(
      "--out", o.out,
      "Directory for the files of the run: config.json, metrics.jsonl, buckets.csv, bucket_plan.json, "
      "trace.json.gz (ui.perfetto.dev), events for TensorBoard, report.html");
  out->type_name("DIR");
  group->add_flag("--overwrite", o.overwrite, "Remove an earlier run from DIR instead of refusing it")
      ->needs(out);
  group
      ->add_option("--trace-steps", raw.trace_steps,
                   "Steps of trace.json.gz, from 1; default: five after warm-up")
      ->type_name("FIRST:LAST")
      ->needs(out);
  group
      ->add_option("--eval-every", o.eval_every, "Evaluate every N epochs and at the end; 0: at the end only")
      ->check(not_negative())
      ->capture_default_str();
  group->add_flag("--eval-flip", o.eval_flip,
                  "Evaluate the mean of the logits of each image and of its mirror image");
  group
      ->add_option("--target-accuracy", o.target_accuracy,
                   "Stop at the first evaluation with this accuracy in percent, and say how long it took")
      ->check(CLI::Range(0.0, 100.0))
      ->type_name("PERCENT");
  const auto quiet = group->add_flag("-q,--quiet", o.quiet, "No line per step, no progress bar");
  group
      ->add_flag("-v,--verbose", o.verbose,
                 "A line per step on a terminal too, and how exact the clocks of ranks are")
      ->excludes(quiet);
}

}  // namespace brigade::apps
