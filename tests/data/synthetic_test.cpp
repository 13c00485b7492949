// SPDX-License-Identifier: MIT
// tests/data/synthetic_test.cpp - the data set that needs no download, in memory and through files.
#include "data/synthetic.h"

#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <set>

#include "core/parallel.h"
#include "data/cifar10.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::data;

TEST_CASE("synthetic images depend on seed and index only", "[data][synthetic]") {
  const Split big = make_synthetic({.train = 40, .test = 10, .seed = 4});
  set_num_threads(1);
  const Split small = make_synthetic({.train = 25, .test = 5, .seed = 4});
  set_num_threads(available_cores());
  REQUIRE(test::differs_bitwise(big.train.images.slice(0, 0, 25), small.train.images) == "");
  REQUIRE(test::differs_bitwise(big.test.images.slice(0, 0, 5), small.test.images) == "");
  REQUIRE(std::equal(small.train.labels.begin(), small.train.labels.end(), big.train.labels.begin()));
  const Split other = make_synthetic({.train = 25, .test = 5, .seed = 5});
  REQUIRE(test::differs_bitwise(other.train.images, small.train.images) != "");
}

TEST_CASE("no synthetic image occurs twice, within a set or across sets", "[data][synthetic]") {
  const Split split = make_synthetic({.train = 300, .test = 100, .seed = 1});
  std::set<std::string> images;
  for (const Dataset* set : {&split.train, &split.test})
    for (std::int64_t i = 0; i < set->size(); ++i)
      images.emplace(reinterpret_cast<const char*>(set->images.data<std::uint8_t>() + i * kImageBytes),
                     kImageBytes);
  REQUIRE(images.size() == 400);
}

TEST_CASE("labels are spread evenly and normalisation is that of the training set", "[data][synthetic]") {
  const Split split = make_synthetic({.train = 2000, .test = 10, .classes = 7});
  std::array<int, 7> count{};
  for (const std::uint8_t label : split.train.labels) ++count.at(label);
  for (const int times : count) REQUIRE(std::abs(times - 2000 / 7) < 80);  // standard deviation 16
  const Normalization measured = measure(split.train.images);
  REQUIRE(split.train.normalization.mean == measured.mean);
  REQUIRE(split.test.normalization.std == measured.std);
  REQUIRE(split.train.classes == 7);
}

TEST_CASE("synthetic classes can be told apart, though not perfectly by their mean image",
          "[data][synthetic]") {
  // The simplest learner: the nearest class mean. It must beat chance (0.1) by far, or nothing can be
  // learned, and leave room above, or everything is trivial.
  const Split split = make_synthetic({.train = 1000, .test = 300, .seed = 2});
  std::vector<std::vector<double>> mean(10, std::vector<double>(3072));
  std::array<double, 10> count{};
  for (std::size_t i = 0; i < 1000; ++i) {
    const std::uint8_t label = split.train.labels[i];
    ++count[label];
    for (std::size_t k = 0; k < 3072; ++k)
      mean[label][k] += split.train.images.data<std::uint8_t>()[i * 3072 + k];
  }
  int correct = 0;
  for (std::size_t i = 0; i < 300; ++i) {
    std::array<double, 10> distance{};
    for (std::size_t c = 0; c < 10; ++c)
      for (std::size_t k = 0; k < 3072; ++k)
        distance[c] +=
            std::pow(split.test.images.data<std::uint8_t>()[i * 3072 + k] - mean[c][k] / count[c], 2);
    correct += std::min_element(distance.begin(), distance.end()) - distance.begin() == split.test.labels[i];
  }
  INFO("correct: " << correct << " of 300");
  REQUIRE(correct > 300 * 3 / 10);
  REQUIRE(correct < 300 * 95 / 100);
}

TEST_CASE("a synthetic set written in CIFAR format reads back the same", "[data][synthetic][cifar]") {
  const test::TempDir dir;
  const Split written = make_synthetic({.train = 23, .test = 4});
  write_cifar10(written, dir / "new");
  const Split read = read_cifar(dir / "new", {.allow_short = true});
  REQUIRE(read.train.labels == written.train.labels);
  REQUIRE(read.test.labels == written.test.labels);
  REQUIRE(test::differs_bitwise(read.train.images, written.train.images) == "");
  REQUIRE(test::differs_bitwise(read.test.images, written.test.images) == "");
  // Five training files that differ by at most one record, and nothing but the six files.
  REQUIRE(std::filesystem::file_size(dir / "new/cifar-10-batches-bin/data_batch_1.bin") == 4 * 3073);
  REQUIRE(std::filesystem::file_size(dir / "new/cifar-10-batches-bin/data_batch_5.bin") == 5 * 3073);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir / "new/cifar-10-batches-bin")) {
    REQUIRE(entry.path().extension() == ".bin");
    ++files;
  }
  REQUIRE(files == 6);
}

TEST_CASE("make_synthetic_cifar writes what the library makes and tells usage errors from failures",
          "[data][synthetic][script]") {
  const test::TempDir dir;
  const auto run = [&](const std::string& arguments) {
    const std::string program = BRIGADE_BINARY_DIR "/bin/make_synthetic_cifar ";
    const std::string log = (dir / "log").string();
    return WEXITSTATUS(std::system(str(program, arguments, " >'", log, "' 2>&1").c_str()));
  };
  REQUIRE(run(str("--out '", (dir / "out").string(), "' --train 12 --test 3 --seed 8")) == 0);
  REQUIRE_THAT(test::read_text(dir / "log"),
               ContainsSubstring("synthetic CIFAR, seed 8: 12 training and 3 test images, 10 classes"));
  const Split expected = make_synthetic({.train = 12, .test = 3, .seed = 8});
  const Split read = read_cifar(dir / "out", {.allow_short = true});
  REQUIRE(test::differs_bitwise(read.train.images, expected.train.images) == "");
  REQUIRE(read.test.labels == expected.test.labels);

  REQUIRE(run("") == 2);
  REQUIRE_THAT(test::read_text(dir / "log"), ContainsSubstring("--out is required"));
  REQUIRE(run("--out x --train 4") == 2);
  REQUIRE(run("--out /dev/null/x --train 5 --test 1") == 1);
  REQUIRE_THAT(test::read_text(dir / "log"), ContainsSubstring("cannot create /dev/null/x"));
}

TEST_CASE("the writer refuses what the format cannot hold and names the path it cannot write",
          "[data][synthetic][error]") {
  const test::TempDir dir;
  REQUIRE_THROWS_WITH(write_cifar10(make_synthetic({.train = 4, .test = 1}), dir.path()),
                      ContainsSubstring("at least 5 images; got 4"));
  REQUIRE_THROWS_WITH(write_cifar10(make_synthetic({.train = 5, .test = 1, .classes = 11}), dir.path()),
                      ContainsSubstring("10 classes; got 11"));
  test::write_zeros(dir / "file", 1);
  REQUIRE_THROWS_WITH(write_cifar10(make_synthetic({.train = 5, .test = 1}), dir / "file"),
                      ContainsSubstring(str("cannot create ", (dir / "file").string())));
  // /dev/full fails only when bytes reach it: an error seen at close must count.
  std::filesystem::create_directories(dir / "cifar-10-batches-bin");
  std::filesystem::create_symlink("/dev/full", dir / "cifar-10-batches-bin/test_batch.bin.partial");
  REQUIRE_THROWS_WITH(write_cifar10(make_synthetic({.train = 5, .test = 1}), dir.path()),
                      ContainsSubstring("test_batch.bin: No space left"));
}

TEST_CASE("synthetic options out of range are refused", "[data][synthetic][error]") {
  REQUIRE_THROWS_WITH(make_synthetic({.train = 0}), ContainsSubstring("got train 0"));
  REQUIRE_THROWS_WITH(make_synthetic({.classes = 300}), ContainsSubstring("got 300"));
  REQUIRE_THROWS_WITH(make_synthetic({.noise_std = -1}), ContainsSubstring("got -1"));
}

TEST_CASE("measured statistics are those of the pixels", "[data][synthetic]") {
  Tensor images = Tensor::zeros({2, 3, 32, 32}, DType::u8);
  std::uint8_t* bytes = images.data<std::uint8_t>();
  for (int i = 0; i < 1024; ++i) bytes[i] = 255;                // red: one image white, one black
  for (int i = 0; i < 1024; ++i) bytes[1024 + i] = 51;          // green: 51 (0.2) and 153 (0.6)
  for (int i = 0; i < 1024; ++i) bytes[3072 + 1024 + i] = 153;  // blue stays 0: no contrast
  const Normalization result = measure(images);
  const auto near = [](double value) { return Catch::Matchers::WithinAbs(value, 1e-12); };
  REQUIRE_THAT(result.mean[0], near(0.5));
  REQUIRE_THAT(result.std[0], near(0.5));
  REQUIRE_THAT(result.mean[1], near(0.4));
  REQUIRE_THAT(result.std[1], near(0.2));
  REQUIRE_THAT(result.mean[2], near(0.0));
  REQUIRE_THAT(result.std[2], near(1.0));
}
