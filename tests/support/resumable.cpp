// SPDX-License-Identifier: MIT
// tests/support/resumable.cpp - see the header.
#include "tests/support/resumable.h"

#include <stdlib.h>

#include "autograd/engine.h"
#include "autograd/ops/loss.h"
#include "core/checksum.h"
#include "kernels/ops.h"
#include "nn/activations.h"
#include "nn/batch_norm.h"
#include "nn/conv2d.h"
#include "nn/linear.h"
#include "nn/optim/catalog.h"
#include "nn/pooling.h"
#include "nn/sequential.h"
#include "nn/state_dict.h"

namespace brigade::test {

Resumable::Resumable(dist::ProcessGroup& group, const ResumableOptions& options) : group_(group) {
  default_generator() = {.seed = options.seed + static_cast<std::uint64_t>(group.rank())};
  auto model = std::make_unique<nn::Sequential>();
  model->emplace<nn::Conv2d>(3, 4, 3, nn::Conv2dOptions{.padding = 1});
  model->emplace<nn::BatchNorm2d>(4);
  model->emplace<nn::ReLU>();
  model->emplace<nn::AdaptiveAvgPool2d>(1);
  model->emplace<nn::Flatten>();
  model->emplace<nn::Dropout>(0.25);
  model->emplace<nn::Linear>(4, 10);
  model_ = std::move(model);
  model_->to(options.device.value_or(group.device()));
  // Two buckets at least, so that a checkpoint comes in pieces.
  ddp_ = std::make_unique<dist::Ddp>(
      model_->named_parameters(), model_->named_buffers(), group,
      dist::DdpOptions{.plan = {.caps = {.bytes = 200, .first_bytes = 100}}, .hook = options.hook});
  optimizer_ =
      optim::make_optimizer(options.optimizer, ddp_->parameters(), {.lr = 0.05, .weight_decay = 1e-3});
  ema_ = std::make_unique<optim::Ema>(ddp_->parameters(), 0.9);
}

void Resumable::backward_of_next() {
  ++done_;
  ddp_->parameters().zero_grad();
  const auto step = static_cast<std::uint64_t>(done_), rank = static_cast<std::uint64_t>(group_.rank());
  const Tensor images = Tensor::empty({4, 3, 4, 4}), labels = Tensor::empty({4}, DType::i64);
  for (std::int64_t i = 0; i < images.numel(); ++i)
    images.data<float>()[i] = normal_at(step, rank, static_cast<std::uint64_t>(i));
  for (std::int64_t i = 0; i < labels.numel(); ++i)
    labels.data<std::int64_t>()[i] = philox(step, rank, static_cast<std::uint64_t>(i))[0] % 10;
  const Device device = model_->parameters().front().value().device();
  const Variable loss = cross_entropy((*model_)(images.to(device)), labels.to(device));
  backward(loss);
  optimizer_->set_lr(0.05 / static_cast<double>(done_));
}

void Resumable::step() {
  backward_of_next();
  optimizer_->step();
  ema_->update();
}

void Resumable::step(dist::CheckpointWriter& writer) {
  backward_of_next();
  const dist::TrainingState state = this->state();
  writer.begin(done_, state);
  optimizer_->begin_step();
  for (const dist::BucketSpec& bucket : ddp_->plan().buckets) {
    optimizer_->update(bucket.range);
    writer.add(bucket.range);
  }
  ema_->update();
  writer.end({});
}

void Resumable::load(const dist::Checkpoint& checkpoint) {
  dist::load_checkpoint(checkpoint, state(), group_.rank(), group_.size());
  done_ = checkpoint.manifest.step;
  ddp_->start_at(done_);
}

dist::TrainingState Resumable::state() {
  dist::TrainingState state{.model = nn::state_dict(*model_),
                            .of_rank = ddp_->hook_state(),
                            .optimizer = optimizer_.get(),
                            .ema = ema_.get(),
                            .generator = &default_generator()};
  for (const nn::NamedBuffer& buffer : model_->named_buffers())
    state.of_rank.emplace_back("buffer." + buffer.name, buffer.tensor);
  return state;
}

std::uint64_t Resumable::fingerprint() {
  const dist::TrainingState state = this->state();
  std::string all = str(optimizer_->steps(), " ", state.generator->seed, " ", state.generator->next_stream);
  for (const NamedTensors& tensors : {state.model, state.of_rank, optimizer_->state(), ema_->state()})
    for (const auto& [name, tensor] : tensors) {
      const Tensor dense = ops::clone(tensor.to(Device{}));
      all += str(name, " ", checksum({dense.raw(), static_cast<std::size_t>(dense.bytes())}), " ");
    }
  return checksum(all);
}

SharedFolder::SharedFolder(dist::ProcessGroup& group) : mine_(group.rank() == 0) {
  std::string name;
  if (mine_) {
    name = (std::filesystem::temp_directory_path() / "brigade_checkpoint_XXXXXX").string();
    BRIGADE_CHECK(mkdtemp(name.data()) != nullptr, "cannot make a temporary directory like ", name);
  }
  path_ = group.all_gather_text(name).front();
}

SharedFolder::~SharedFolder() {
  std::error_code ignored;
  if (mine_) std::filesystem::remove_all(path_, ignored);
}

}  // namespace brigade::test
