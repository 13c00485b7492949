// SPDX-License-Identifier: MIT
// data/cifar10.h - reads CIFAR-10 and CIFAR-100 in their binary version
// (https://www.cs.toronto.edu/~kriz/cifar.html) and writes the former. Read before: data/dataset.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>

#include "data/dataset.h"

namespace brigade::data {

/// cifar10:  cifar-10-batches-bin/{data_batch_1..5,test_batch}.bin;
///           a record is a label byte and 3072 image bytes.
/// cifar100: cifar-100-binary/{train,test}.bin;
///           a record is a coarse label, a fine label (the one used), an image.
enum class CifarKind : std::uint8_t { cifar10, cifar100 };

/// The folder name inside the official archive: "cifar-10-batches-bin" or "cifar-100-binary".
const char* folder_name(CifarKind kind);

struct CifarOptions {
  CifarKind kind = CifarKind::cifar10;
  /// Accept files with any positive number of whole records, for small test sets. Without it a file must have
  /// its official size, so that the training set comes to 50,000 images and the test set to 10,000.
  bool allow_short = false;
  /// At most that many records, from the first. Files beyond are checked for their size but not read.
  std::int64_t limit_train = std::numeric_limits<std::int64_t>::max();
  std::int64_t limit_test = std::numeric_limits<std::int64_t>::max();
};

/// Reads the set whose files lie in `directory` or in its subfolder folder_name(kind). Images
/// come in the order of the files. Normalisation uses the published statistics of the whole
/// training set whatever the limit.
///
/// Throws Error, naming the path, for a file that is missing, not a regular file, unreadable or of a wrong
/// size (with both sizes), and for a label out of range (with the record's number in its file, from 0).
Split read_cifar(const std::filesystem::path& directory, const CifarOptions& options = {});

/// Writes `split` as directory/cifar-10-batches-bin/*.bin, creating directories and replacing
/// files. The training set is cut into five parts that differ by at most one record, hence needs 5
/// images or more, and 10 classes at most. A file appears under its name only when complete. Throws
/// Error naming the path on failure.
void write_cifar10(const Split& split, const std::filesystem::path& directory);

}  // namespace brigade::data
