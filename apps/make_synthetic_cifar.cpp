// SPDX-License-Identifier: MIT
// apps/make_synthetic_cifar.cpp - writes the synthetic CIFAR of data/synthetic.h as files in CIFAR-10's binary format,
// for machines without network and for other programs to read.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "apps/common/run_main.h"
#include "data/cifar10.h"
#include "data/synthetic.h"

using namespace brigade;

int main(int argc, char** argv) {
  data::SyntheticOptions options;
  std::string directory;
  CLI::App app(
      "Writes DIR/cifar-10-batches-bin with coloured waves, one mixture a class, under Gaussian noise.");
  app.add_option("--out", directory, "Where to write")->type_name("DIR")->required();
  // Readers refuse short files unless told otherwise, hence the official numbers by default.
  app.add_option("--train", options.train, "Training images, in five files")
      ->check(CLI::Range(std::int64_t{5}, std::int64_t{50'000'000}))
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--test", options.test, "Test images")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{10'000'000}))
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Same seed, same images")->type_name("N")->capture_default_str();
  app.add_option("--noise-std", options.noise_std, "Of the pixel noise; black is 0, white is 1")
      ->check(CLI::NonNegativeNumber)
      ->type_name("X")
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;  // CLI11 has a code for every kind of mistake; ours is 2.
  }

  return apps::run_main([&] {
    const data::Split split = data::make_synthetic(options);
    data::write_cifar10(split, directory);
    std::printf("%s\nwritten to %s/%s\n", data::describe(split).c_str(), directory.c_str(),
                data::folder_name(data::CifarKind::cifar10));
  });
}
