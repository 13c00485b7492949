// SPDX-License-Identifier: MIT
// apps/common/train_options.h - the command line of train_resnet18 as a value.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "data/loader.h"
#include "dist/ddp.h"
#include "dist/launch.h"

namespace brigade::apps {

/// Every flag, with its default. Checked: values are in range and go together.
struct TrainOptions {
  // Data
  std::string data;                       ///< Empty: looked for (data/find_data.h).
  std::optional<std::int64_t> synthetic;  ///< Number of training images to generate.
  bool allow_short = false;
  bool cifar100 = false;
  std::int64_t limit_train = std::numeric_limits<std::int64_t>::max();
  std::int64_t limit_test = std::numeric_limits<std::int64_t>::max();
  bool augment = true;
  bool shuffle = true;
  double noise_std = 0;
  std::int64_t cutout = 0;

  // Model
  std::string model = "resnet18";
  std::string stem = "cifar";
  DType precision = DType::f32;
  std::string precision_note;  ///< Why it is not the one asked for; empty: it is.
  bool checkpoint_activations = false;
  std::string init, save;  ///< safetensors files; empty: none.

  // Optimisation
  std::int64_t epochs = 1;
  std::int64_t steps = 0;        ///< 0: given by epochs.
  std::int64_t batch_size = 32;  ///< Per rank and micro-step.
  std::int64_t accumulate = 1;
  std::string optimizer = "sgd";
  std::string schedule = "cosine";
  double lr = 0.01;
  double momentum = 0.9;
  double weight_decay = 5e-4;
  double label_smoothing = 0;
  bool nesterov = false;
  bool norm_decay = true;
  double clip_norm = 0;  ///< 0: off.
  double ema = 0;        ///< Decay of the parameter average; 0: off.
  std::uint64_t seed = 0;

  // Ranks
  int ranks = 1;
  std::string backend = "auto";
  std::string algorithm = "auto";
  std::string device = "auto";
  bool cuda_graph = false;
  int threads = 0;       ///< Per rank; 0: cores / ranks on this host.
  double timeout = 120;  ///< Seconds.
  std::string bn_buffers = "broadcast";
  bool find_unused = false;
  std::string non_finite = "error";
  std::int64_t check_every = 100;
  bool deterministic = false;

  // Gradients
  std::string sync = "bucketed";
  std::string plan = "auto";         ///< A rule, or the path of a plan file…
  std::string plan_json;             ///< … and what it holds.
  std::vector<double> bucket_mb{4};  ///< Several: a cap for each bucket.
  double first_bucket_mb = 1;
  double last_bucket_mb = std::numeric_limits<double>::infinity();
  double min_bucket_kb = 0;
  bool split_large = false;
  std::string bucket_order = "reverse";
  std::string comm_hook = "none";
  std::string divide = "auto";
  bool print_plan = false;
  std::string save_plan;  ///< Empty: not saved.

  // Modelled network
  std::string net, net_schedule, slow_rank;  ///< Empty: the real one.

  // Checkpoints
  std::int64_t save_every = 0;  ///< Steps; 0: not.
  double save_seconds = 0;      ///< 0: not.
  std::string checkpoint_dir;   ///< Empty: "checkpoints" in `out`.
  int keep_last = 3;
  std::string resume;  ///< "auto", a checkpoint, or a folder of them; empty: the run begins.
  std::string on_save_failure = "go-on";

  /// Where checkpoints go; empty: nowhere.
  std::string checkpoint_folder() const;

  // Output
  std::string out;                               ///< Empty: no files.
  std::int64_t eval_every = 1;                   ///< Epochs; 0: at the end only.
  bool eval_flip = false;                        ///< Evaluate the mean over each image and its mirror image.
  double target_accuracy = 0;                    ///< Percent at which training stops; 0: it does not.
  bool overwrite = false;                        ///< --out may hold an earlier run, which is removed.
  std::int64_t trace_first = 0, trace_last = 0;  ///< Steps of trace.json.gz, from 1; 0: some after warm-up.
  bool quiet = false, verbose = false;
  bool model_summary = false;  ///< Instead of training.
  std::string command;         ///< As it was given.

  dist::LaunchOptions launch() const;
  dist::DdpOptions ddp() const;
  data::LoaderOptions loading(int rank, int size) const;
  std::string to_json() const;  ///< config.json
};

/// From flags, $BRIGADE_* variables and the file of --config (apps/common/train_config.h). Warns on stderr of variables
/// that nobody knows. Throws EarlyExit (apps/common/run_main.h) for --help, --print-config, --completion and for usage
/// errors.
TrainOptions parse_train_options(int argc, char** argv);

}  // namespace brigade::apps
