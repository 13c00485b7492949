// SPDX-License-Identifier: MIT
// apps/bench/subject.h - what benchmarks train: a model and its loss on generated data, different on every rank.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/dtype.h"
#include "nn/module.h"

namespace brigade::apps {

struct SubjectOptions {
  std::string model = "resnet18";  ///< A name of models::model_names(), or gpt.
  DType precision = DType::f32;
  std::int64_t batch_size = 16;  ///< Images, or sequences of 64 tokens.
  int rank = 0, size = 1;
};

struct Subject {
  std::unique_ptr<nn::Module> model;
  std::function<Variable()> loss;  ///< Of the next batch.
};

/// gpt: 6 layers of width 256, 4 heads, about 5 M parameters.
Subject make_subject(const SubjectOptions& options);

}  // namespace brigade::apps
