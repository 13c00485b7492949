// SPDX-License-Identifier: MIT
// apps/common/load_data.cpp - see the header.
#include "apps/common/load_data.h"

#include <algorithm>

#include "data/cifar10.h"
#include "data/find_data.h"
#include "data/synthetic.h"

namespace brigade::apps {
namespace {

data::Split synthetic(const TrainOptions& options, std::int64_t train) {
  // A fifth for testing, as in CIFAR-10.
  const std::int64_t test = std::max<std::int64_t>(1, train / 5);
  return data::make_synthetic({.train = std::min(train, options.limit_train),
                               .test = std::min(test, options.limit_test),
                               .seed = options.seed});
}

}  // namespace

LoadedData load_data(const TrainOptions& options) {
  if (options.synthetic) {
    data::Split split = synthetic(options, *options.synthetic);
    const std::string note = data::describe(split);
    return {std::move(split), note};
  }
  const data::CifarKind kind = options.cifar100 ? data::CifarKind::cifar100 : data::CifarKind::cifar10;
  const data::DataSearch found = data::locate(
      options.data.empty() ? std::nullopt : std::optional<std::filesystem::path>(options.data), kind);
  if (found.directory) {
    data::Split split = data::read_cifar(*found.directory, {.kind = kind,
                                                            .allow_short = options.allow_short,
                                                            .limit_train = options.limit_train,
                                                            .limit_test = options.limit_test});
    const std::string note = data::describe(split);
    return {std::move(split), note};
  }
  std::string places;
  for (const std::string& place : found.looked_at) places += str(places.empty() ? "" : ", ", place);
  BRIGADE_CHECK(!options.cifar100, "no CIFAR-100 found; looked at ", places, "; use --data DIR");
  data::Split split = synthetic(options, 50'000);
  const std::string note =
      str("no CIFAR-10 found (looked at ", places,
          "; get it with scripts/get_cifar10.sh, without a network with its --from ARCHIVE): using ",
          data::describe(split));
  return {std::move(split), note};
}

}  // namespace brigade::apps
