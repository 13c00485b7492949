// SPDX-License-Identifier: MIT
// apps/bench/subject.cpp - see the header.
#include "apps/bench/subject.h"

#include "autograd/ops/loss.h"
#include "core/rng.h"
#include "data/loader.h"
#include "data/synthetic.h"
#include "models/catalog.h"
#include "models/gpt.h"

namespace brigade::apps {
namespace {

Subject make_gpt(const SubjectOptions& options) {
  constexpr std::int64_t kVocabulary = 256, kContext = 64;
  auto gpt = std::make_unique<models::Gpt>(models::GptOptions{.vocabulary = kVocabulary,
                                                              .context = kContext,
                                                              .layers = 6,
                                                              .heads = 4,
                                                              .width = 256,
                                                              .precision = options.precision});
  models::Gpt& model = *gpt;
  return {
      std::move(gpt), [&model, options, step = std::uint64_t{0}]() mutable {
        std::vector<std::int64_t> tokens;
        for (std::int64_t i = 0; i < options.batch_size * kContext; ++i)
          tokens.push_back(philox(7, step, static_cast<std::uint64_t>(i * options.size + options.rank))[0] %
                           kVocabulary);
        ++step;
        return models::next_token_loss(model, Tensor::from(tokens, {options.batch_size, kContext}));
      }};
}

Subject make_classifier(const SubjectOptions& options) {
  const auto images = std::make_shared<data::Split>(data::make_synthetic({.train = 4096, .test = 16}));
  const auto loader = std::make_shared<data::Loader>(
      images->train,
      data::LoaderOptions{.batch_size = options.batch_size, .rank = options.rank, .size = options.size});
  auto model = models::make_model(options.model, {.precision = options.precision});
  nn::Module& network = *model;
  return {std::move(model), [&network, images, loader] {
            const data::Batch batch = loader->next();
            return cross_entropy(network(batch.images), batch.labels);
          }};
}

}  // namespace

Subject make_subject(const SubjectOptions& options) {
  default_generator() = {.seed = 1};
  return options.model == "gpt" ? make_gpt(options) : make_classifier(options);
}

}  // namespace brigade::apps
