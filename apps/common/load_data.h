// SPDX-License-Identifier: MIT
// apps/common/load_data.h - the data set that the flags ask for.
#pragma once

#include <string>

#include "apps/common/train_options.h"
#include "data/dataset.h"

namespace brigade::apps {

struct LoadedData {
  data::Split split;
  std::string note;  ///< What to tell the user: where it came from, or why it is synthetic.
};

/// --data, $BRIGADE_DATA, the cache folder, else synthetic images with a note that says so. Throws Error for
/// files that are missing or wrong.
LoadedData load_data(const TrainOptions& options);

}  // namespace brigade::apps
