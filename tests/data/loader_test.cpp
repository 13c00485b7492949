// SPDX-License-Identifier: MIT
// tests/data/loader_test.cpp - cases A14 to A16 end to end: batches do not depend on threads,
// and epochs pass by themselves.
#include "data/loader.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <set>
#include <thread>

#include "data/synthetic.h"
#include "kernels/ops.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::data;

namespace {

const AugmentOptions kAll{.crop_padding = 4, .flip = true, .cutout = 8, .noise_std = 0.1};

Dataset small_set(std::int64_t count) { return make_synthetic({.train = count, .test = 1, .seed = 3}).train; }

std::string differs(const Batch& a, const Batch& b) {
  if (a.indices != b.indices || a.epoch != b.epoch || a.step != b.step) return "not the same samples";
  return test::differs_bitwise(a.images, b.images) + test::differs_bitwise(a.labels, b.labels);
}

// A batch that is nothing but its number.
Batch numbered(std::int64_t n) { return {.indices = {n}}; }

}  // namespace

TEST_CASE("any number of loader threads gives the same batches", "[data][loader][A16]") {
  const Dataset set = small_set(40);
  for (const int rank : {0, 1}) {
    LoaderOptions options{.batch_size = 4, .rank = rank, .size = 2, .seed = 9, .augment = kAll, .threads = 0};
    Loader inline_loader(set, options);
    options.threads = 1;
    Loader one(set, options);
    options.threads = 4;
    options.prefetch = 3;
    Loader four(set, options);
    for (int step = 0; step < 2 * 5; ++step) {  // two epochs
      const Batch expected = inline_loader.next();
      REQUIRE(differs(one.next(), expected) == "");
      REQUIRE(differs(four.next(), expected) == "");
    }
  }
}

TEST_CASE("a device makes of bytes and placements the images that a loader of floats brings, bit for bit",
          "[data][loader][bytes]") {
  const Dataset set = small_set(40);
  for (const AugmentOptions& augment :
       {AugmentOptions{}, AugmentOptions{.crop_padding = 4, .flip = true, .cutout = 8}}) {
    LoaderOptions options{.batch_size = 4, .rank = 1, .size = 2, .seed = 9, .augment = augment};
    Loader floats(set, options);
    options.images = ImagesAs::bytes;
    Loader bytes(set, options);
    const Tensor values =
        Augmenter(augment, set.normalization, options.seed).values().to(test::test_device());
    for (int step = 0; step < 2 * 5; ++step) {  // Two epochs.
      Batch expected = floats.next(), got = bytes.next();
      REQUIRE(got.images.dtype() == DType::u8);
      got.images = ops::augment_images(got.images.to(values.device()), got.placements.to(values.device()),
                                       values, augment.cutout);
      REQUIRE(differs(got, expected) == "");
    }
  }
  REQUIRE_THROWS_WITH(Loader(set, {.batch_size = 4, .augment = kAll, .images = ImagesAs::bytes}),
                      ContainsSubstring("bytes come without noise; got noise_std 0.1"));
}

TEST_CASE("how a sample is augmented does not depend on the number of ranks", "[data][loader][A16]") {
  const Dataset set = small_set(24);
  Loader whole(set, {.batch_size = 8, .seed = 1, .augment = kAll});
  Loader left(set, {.batch_size = 4, .rank = 0, .size = 2, .seed = 1, .augment = kAll});
  Loader right(set, {.batch_size = 4, .rank = 1, .size = 2, .seed = 1, .augment = kAll});
  for (int step = 0; step < 6; ++step) {
    const Batch both = whole.next(), first = left.next(), second = right.next();
    REQUIRE(test::differs_bitwise(both.images.slice(0, 0, 4), first.images) == "");
    REQUIRE(test::differs_bitwise(both.images.slice(0, 4, 8), second.images) == "");
    REQUIRE(test::differs_bitwise(both.labels.slice(0, 4, 8), second.labels) == "");
  }
}

TEST_CASE("epochs advance by themselves, each with its own order and crops", "[data][loader][A14]") {
  const Dataset set = small_set(30);
  Loader loader(set, {.batch_size = 10, .augment = standard_augment(), .threads = 2});
  REQUIRE(loader.steps_per_epoch() == 3);
  std::set<std::vector<std::int64_t>> orders;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::int64_t> order;
    for (std::int64_t step = 0; step < 3; ++step) {
      const Batch batch = loader.next();
      REQUIRE(batch.epoch == epoch);
      REQUIRE(batch.step == step);
      order.insert(order.end(), batch.indices.begin(), batch.indices.end());
    }
    REQUIRE(std::set(order.begin(), order.end()).size() == 30);
    orders.insert(order);
  }
  REQUIRE(orders.size() == 3);
}

TEST_CASE("a loader resumed at (epoch, step) continues as if it had never stopped", "[data][loader]") {
  const Dataset set = small_set(30);
  const LoaderOptions options{.batch_size = 10, .augment = kAll, .threads = 2};
  const auto [skip, epoch, step] =
      GENERATE(table<int, std::int64_t, std::int64_t>({{4, 1, 1}, {3, 1, 0}, {3, 0, 3}, {0, 0, 0}}));
  Loader through(set, options);
  for (int i = 0; i < skip; ++i) through.next();
  LoaderOptions late = options;
  late.start_epoch = epoch;
  late.start_step = step;
  Loader resumed(set, late);
  for (int i = 0; i < 4; ++i) REQUIRE(differs(resumed.next(), through.next()) == "");
}

TEST_CASE(
    "what is left of an epoch is seen once by any number of ranks, in equal batches, and whole epochs follow",
    "[data][loader]") {
  const Dataset set = small_set(100);
  // Two ranks of 8 have done two steps of six; 100 - 6 * 16 samples sit the epoch out, as they would have.
  const std::int64_t begin = 2 * 16, end = 6 * 16;
  const auto order = permutation(100, 9, 3);
  for (const int size : {1, 2, 3, 5})
    for (const std::int64_t batches : {1, 3, 7}) {
      std::multiset<std::int64_t> seen;
      for (int rank = 0; rank < size; ++rank) {
        Loader loader(set, {.batch_size = 8,
                            .rank = rank,
                            .size = size,
                            .seed = 9,
                            .start_epoch = 3,
                            .rest = {begin, end, batches}});
        for (std::int64_t k = 0; k < batches; ++k) {
          const Batch batch = loader.next();
          CHECK(batch.epoch == 3);
          CHECK(batch.uneven);
          CHECK(batch.end == begin + (end - begin) * (k + 1) / batches);
          CHECK(std::abs(batch.size() - (end - begin) / batches / size) <= 1);
          seen.insert(batch.indices.begin(), batch.indices.end());
        }
        // From there on as if the epoch had begun like this.
        Loader whole(set, {.batch_size = 8, .rank = rank, .size = size, .seed = 9, .start_epoch = 4});
        for (int k = 0; k < 5; ++k) {
          const Batch batch = loader.next();
          CHECK(differs(batch, whole.next()) == "");
          CHECK(!batch.uneven);
        }
      }
      CHECK(seen == std::multiset<std::int64_t>(order.begin() + begin, order.begin() + end));
    }
}

TEST_CASE("without shuffling and augmentation a batch is records in order, normalised", "[data][loader]") {
  const Dataset set = small_set(12);
  Loader loader(set, {.batch_size = 2, .rank = 1, .size = 2, .shuffle = false});
  for (int step = 0; step < 6; ++step) {
    const Batch batch = loader.next();
    const std::int64_t first = step % 3 * 4 + 2;
    REQUIRE(batch.indices == std::vector{first, first + 1});
    REQUIRE(batch.images.is_contiguous(MemoryFormat::channels_last));
    for (std::int64_t i = 0; i < 2; ++i) {
      REQUIRE(batch.labels.select(0, i).item() == set.labels[static_cast<std::size_t>(first + i)]);
      const auto out = test::values(batch.images.select(0, i)),
                 in = test::values(set.images.select(0, first + i));
      for (std::size_t k = 0; k < 3072; ++k) {
        const double expected =
            (in[k] / 255 - set.normalization.mean[k / 1024]) / set.normalization.std[k / 1024];
        REQUIRE(out[k] == static_cast<float>(expected));
      }
    }
  }
}

TEST_CASE("the layout of a batch can be chosen and does not change it", "[data][loader]") {
  const Dataset set = small_set(4);
  Loader last(set, {.batch_size = 4, .augment = kAll});
  Loader planar(set, {.batch_size = 4, .augment = kAll, .format = MemoryFormat::contiguous});
  const Batch a = last.next(), b = planar.next();
  REQUIRE(a.images.memory_format() == MemoryFormat::channels_last);
  REQUIRE(b.images.memory_format() == MemoryFormat::contiguous);
  REQUIRE(differs(a, b) == "");
}

TEST_CASE("evaluation counts every image once at any world size", "[data][loader][A15]") {
  // A "model" that is right on a third of the images, so that a repeated or a lost image shows.
  const Dataset set = small_set(10);
  const int size = GENERATE(1, 2, 3, 4, 12), threads = GENERATE(0, 2);
  std::int64_t correct = 0, total = 0;
  for (int rank = 0; rank < size; ++rank) {
    EvaluationLoader loader(set, {.batch_size = 3, .rank = rank, .size = size, .threads = threads});
    std::int64_t mine = 0;
    while (const auto batch = loader.next()) {
      REQUIRE(batch->images.shape() == Shape{batch->size(), 3, 32, 32});
      REQUIRE(batch->size() <= 3);
      for (const std::int64_t index : batch->indices) correct += index % 3 == 1;
      mine += batch->size();
    }
    REQUIRE_FALSE(loader.next());
    REQUIRE(mine == loader.samples());
    total += mine;
  }
  REQUIRE(correct == 3);
  REQUIRE(total == 10);
}

TEST_CASE("evaluation of 10,000 images on 3 ranks has the denominator 10,000", "[data][loader][A15]") {
  const Dataset set{.images = Tensor::zeros({10'000, 3, 32, 32}, DType::u8),
                    .labels = std::vector<std::uint8_t>(10'000),
                    .classes = 1};
  std::set<std::int64_t> seen;
  std::int64_t total = 0;
  for (int rank = 0; rank < 3; ++rank) {
    EvaluationLoader loader(set, {.batch_size = 128, .rank = rank, .size = 3});
    while (const auto batch = loader.next()) {
      total += batch->size();
      seen.insert(batch->indices.begin(), batch->indices.end());
    }
  }
  REQUIRE(total == 10'000);
  REQUIRE(seen.size() == 10'000);
}

TEST_CASE("an exception of a worker reaches the caller in the place of its batch", "[data][loader][error]") {
  const int threads = GENERATE(0, 1, 4);
  const auto make = [](std::int64_t n) {
    if (n == 3) fail("batch 3 is broken");
    return numbered(n);
  };
  Prefetcher prefetcher(make, 0, 10, threads, 4);
  for (std::int64_t n = 0; n < 3; ++n) REQUIRE(prefetcher.next()->indices[0] == n);
  for (int again = 0; again < 2; ++again) REQUIRE_THROWS_WITH(prefetcher.next(), "batch 3 is broken");
}

TEST_CASE("batches come in order although later ones are finished first", "[data][loader]") {
  const auto make = [](std::int64_t n) {
    std::this_thread::sleep_for(std::chrono::milliseconds(n % 4 == 0 ? 4 : 0));
    return numbered(n);
  };
  Prefetcher prefetcher(make, 5, 45, 4, 4);
  for (std::int64_t n = 5; n < 45; ++n) REQUIRE(prefetcher.next()->indices[0] == n);
  REQUIRE_FALSE(prefetcher.next());
}

TEST_CASE("a loader works ahead, but no further than it was told", "[data][loader]") {
  std::atomic<int> made = 0;
  const auto make = [&](std::int64_t n) {
    ++made;
    return numbered(n);
  };
  Prefetcher prefetcher(make, 0, 100, 2, 3);
  const auto wait_for = [&](int count) {
    for (int i = 0; i < 2000 && made < count; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  wait_for(3);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // Time to overshoot.
  REQUIRE(made == 3);
  prefetcher.next();
  wait_for(4);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  REQUIRE(made == 4);
}

TEST_CASE("a loader that is thrown away in the middle stops at once", "[data][loader]") {
  const Dataset set = small_set(16);
  for (int i = 0; i < 100; ++i) {
    Loader loader(set, {.batch_size = 2, .augment = standard_augment(), .threads = 3, .prefetch = 2});
    for (int k = 0; k < i % 4; ++k) loader.next();
  }
  SUCCEED();  // A hang is what could go wrong: CTest's time-out names this case.
}

TEST_CASE("loaders refuse what cannot work", "[data][loader][error]") {
  const Dataset set = small_set(10);
  REQUIRE_THROWS_WITH(Loader(set, {.batch_size = 6, .size = 2}),
                      ContainsSubstring("10 samples, 2 ranks, batch_size 6"));
  REQUIRE_THROWS_WITH(Loader(set, {.batch_size = 5, .threads = -1}), ContainsSubstring("got threads -1"));
  REQUIRE_THROWS_WITH(Loader(set, {.batch_size = 5, .prefetch = 0}), ContainsSubstring("depth 0"));
  REQUIRE_THROWS_WITH(Loader(set, {.batch_size = 5, .start_step = 3}), ContainsSubstring("step of 0 to 2"));
  REQUIRE_THROWS_WITH(EvaluationLoader(set, {.batch_size = 0}),
                      ContainsSubstring("batch_size must be at least 1"));
  REQUIRE_THROWS_WITH(EvaluationLoader(set, {.rank = 3, .size = 3}), ContainsSubstring("rank 3, size 3"));
  Dataset uneven = set;
  uneven.labels.pop_back();
  REQUIRE_THROWS_WITH(Loader(uneven, {.batch_size = 5}),
                      ContainsSubstring("u8 [9, 3, 32, 32], one per label"));
  Dataset mislabelled = set;
  mislabelled.labels[4] = 10;
  REQUIRE_THROWS_WITH(Loader(mislabelled, {.batch_size = 5}),
                      ContainsSubstring("below the number of classes, 10; got 10"));
  REQUIRE_THROWS_WITH(EvaluationLoader(Dataset{}, {}), ContainsSubstring("at least one image"));
}
