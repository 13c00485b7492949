// SPDX-License-Identifier: MIT
// data/cifar10.cpp - the binary version of CIFAR. All files are checked before the first byte is read, and
// sizes decide how much is read, never end-of-file: a truncated file cannot pass, nor add half a record.
#include "data/cifar10.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <span>
#include <system_error>

#include "core/regular_file.h"

namespace brigade::data {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxRecords = 1'000'000;  // Of a file that need not have the official number; 3 GB.

struct Layout {
  const char* title;
  const char* folder;
  std::vector<const char*> train_files;
  const char* test_file;
  std::int64_t train_records;  ///< In each training file.
  std::int64_t test_records;
  std::vector<int> label_ranges;  ///< One per label byte; the last is the class.
  Normalization normalization;

  std::int64_t record_bytes() const { return static_cast<std::int64_t>(label_ranges.size()) + kImageBytes; }
};

const Layout& layout_of(CifarKind kind) {
  static const Layout cifar10{
      .title = "CIFAR-10",
      .folder = "cifar-10-batches-bin",
      .train_files = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                      "data_batch_5.bin"},
      .test_file = "test_batch.bin",
      .train_records = 10'000,
      .test_records = 10'000,
      .label_ranges = {10},
      .normalization = {{.49139968, .48215841, .44653091}, {.24703223, .24348513, .26158784}}};
  static const Layout cifar100{
      .title = "CIFAR-100",
      .folder = "cifar-100-binary",
      .train_files = {"train.bin"},
      .test_file = "test.bin",
      .train_records = 50'000,
      .test_records = 10'000,
      .label_ranges = {20, 100},
      .normalization = {{.50707516, .48654887, .44091784}, {.26733429, .25643846, .27615047}}};
  return kind == CifarKind::cifar10 ? cifar10 : cifar100;
}

std::string expected_files(const Layout& layout) {
  std::string names;
  for (const char* name : layout.train_files) names += str(name, ", ");
  return names + layout.test_file;
}

/// The number of records in `path`; throws unless it is a file that read_records() can take.
std::int64_t check_file(const fs::path& path, const Layout& layout, std::int64_t official, bool allow_short) {
  std::error_code failure;
  BRIGADE_CHECK(fs::status(path, failure).type() != fs::file_type::not_found, "cifar: missing file ",
                path.string(), "; ", layout.title, " binary consists of ", expected_files(layout),
                " in that folder; scripts/get_cifar10.sh gets them, with --from out of an archive");
  const std::int64_t bytes = RegularFile(path, str("cifar: ", path.string(), ": ")).bytes();

  const std::int64_t record = layout.record_bytes();
  BRIGADE_CHECK(bytes > 0 && bytes % record == 0 && (allow_short || bytes == official * record),
                "cifar: ", path.string(), " must have ", official * record, " bytes (", official,
                " records of ", record, ")",
                allow_short ? str(" or another positive multiple of ", record) : "", "; got ", bytes,
                " bytes; truncated or not ", layout.title, " binary?");
  // A sparse file of any size costs its maker nothing; the images in memory would.
  BRIGADE_CHECK(bytes / record <= kMaxRecords, "cifar: ", path.string(), " may have ", kMaxRecords,
                " records; got ", bytes / record);
  return bytes / record;
}

/// Reads the first `count` records of `path`.
void read_records(const fs::path& path, const Layout& layout, std::int64_t count, std::uint8_t* images,
                  std::uint8_t* labels) {
  RegularFile file(path, str("cifar: ", path.string(), ": "));
  const auto label_bytes = static_cast<std::int64_t>(layout.label_ranges.size());
  std::vector<std::uint8_t> record(static_cast<std::size_t>(layout.record_bytes()));
  for (std::int64_t n = 0; n < count; ++n) {
    file.read(record.data(), layout.record_bytes());
    for (std::size_t i = 0; i < layout.label_ranges.size(); ++i)
      BRIGADE_CHECK(record[i] < layout.label_ranges[i], "cifar: label of record ", n, " in ", path.string(),
                    " must be below ", layout.label_ranges[i], "; got ", static_cast<int>(record[i]));
    labels[n] = record[static_cast<std::size_t>(label_bytes) - 1];
    std::memcpy(images + n * kImageBytes, record.data() + label_bytes, static_cast<std::size_t>(kImageBytes));
  }
}

struct File {
  fs::path path;
  std::int64_t records;
};

Dataset read_files(std::span<const File> files, const Layout& layout, std::int64_t limit) {
  std::int64_t total = 0;
  for (const File& file : files) total += file.records;
  total = std::min(total, limit);

  Dataset set;
  set.images = Tensor::empty({total, kChannels, kSide, kSide}, DType::u8);
  set.labels.resize(static_cast<std::size_t>(total));
  set.classes = layout.label_ranges.back();
  set.normalization = layout.normalization;
  std::int64_t done = 0;
  for (const File& file : files) {
    const std::int64_t count = std::min(file.records, total - done);
    if (count == 0) break;
    read_records(file.path, layout, count, set.images.data<std::uint8_t>() + done * kImageBytes,
                 set.labels.data() + done);
    done += count;
  }
  return set;
}

/// Records [begin, end) of `set`, under a temporary name until all of it is on disk.
void write_file(const Dataset& set, std::int64_t begin, std::int64_t end, const fs::path& path) {
  const fs::path partial = path.string() + ".partial";
  {
    std::ofstream file(partial, std::ios::binary | std::ios::trunc);
    for (std::int64_t n = begin; n < end; ++n) {
      file.put(static_cast<char>(set.labels[static_cast<std::size_t>(n)]));
      file.write(reinterpret_cast<const char*>(set.images.data<std::uint8_t>() + n * kImageBytes),
                 kImageBytes);
    }
    file.close();
    if (!file) {
      const std::string reason = std::strerror(errno);
      std::error_code ignored;
      fs::remove(partial, ignored);
      fail(str("cifar: cannot write ", path.string(), ": ", reason));
    }
  }
  std::error_code failure;
  fs::rename(partial, path, failure);
  BRIGADE_CHECK(!failure, "cifar: cannot write ", path.string(), ": ", failure.message());
}

}  // namespace

const char* folder_name(CifarKind kind) { return layout_of(kind).folder; }

Split read_cifar(const fs::path& directory, const CifarOptions& options) {
  BRIGADE_CHECK(options.limit_train >= 1 && options.limit_test >= 1,
                "cifar: limits must be at least 1; got train ", options.limit_train, ", test ",
                options.limit_test);
  const Layout& layout = layout_of(options.kind);
  std::error_code ignored;
  BRIGADE_CHECK(fs::is_directory(directory, ignored), "cifar: ", directory.string(),
                " must be a directory that holds ", expected_files(layout), " or ", layout.folder,
                "/ with them");
  const fs::path nested = directory / layout.folder;
  const fs::path root = fs::is_directory(nested, ignored) ? nested : directory;

  std::vector<File> train;
  for (const char* name : layout.train_files)
    train.push_back(
        {root / name, check_file(root / name, layout, layout.train_records, options.allow_short)});
  const File test{root / layout.test_file,
                  check_file(root / layout.test_file, layout, layout.test_records, options.allow_short)};

  return {.train = read_files(train, layout, options.limit_train),
          .test = read_files({&test, 1}, layout, options.limit_test),
          .source = str(layout.title, " from ", root.string())};
}

void write_cifar10(const Split& split, const fs::path& directory) {
  const Layout& layout = layout_of(CifarKind::cifar10);
  for (const Dataset* set : {&split.train, &split.test}) {
    check_dataset("write_cifar10", *set);
    BRIGADE_CHECK(set->classes <= layout.label_ranges.back(),
                  "write_cifar10: the format has 10 classes; got ", set->classes);
  }
  const auto parts = static_cast<std::int64_t>(layout.train_files.size());
  const std::int64_t total = split.train.size();
  BRIGADE_CHECK(total >= parts, "write_cifar10: five training files need at least 5 images; got ", total);

  const fs::path root = directory / layout.folder;
  std::error_code failure;
  fs::create_directories(root, failure);
  BRIGADE_CHECK(!failure, "write_cifar10: cannot create ", root.string(), ": ", failure.message());
  for (std::int64_t part = 0; part < parts; ++part)
    write_file(split.train, total * part / parts, total * (part + 1) / parts,
               root / layout.train_files[static_cast<std::size_t>(part)]);
  write_file(split.test, 0, split.test.size(), root / layout.test_file);
}

}  // namespace brigade::data
