// SPDX-License-Identifier: MIT
// tests/core/durable_file_test.cpp - whatever call fails, a file is the old one or the new one, whole.
#include "core/durable_file.h"

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "core/check.h"
#include "core/directory_claim.h"
#include "tests/support/failing_file_system.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

using namespace brigade;
using test::FailingFileSystem;

namespace {

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

TEST_CASE("a durable file has its name only when it is committed, and its digest is that of its bytes",
          "[core][durable]") {
  const test::TempDir folder;
  DurableFile file(folder / "x", 5, "test");
  file.write("he", 2);
  file.write("llo", 3);
  REQUIRE(!std::filesystem::exists(folder / "x"));
  const FileDigest digest = file.commit();
  REQUIRE(test::read_text(folder / "x") == "hello");
  REQUIRE(names_in(folder.path()) == std::vector<std::string>{"x"});
  // XXH3-128 of "hello", as xxhsum -H2 prints it.
  REQUIRE(digest == FileDigest{5, "b5e9c1ad071b3e7fc779cfaa5e523818"});
}

TEST_CASE("a file that is given up leaves nothing", "[core][durable]") {
  const test::TempDir folder;
  { DurableFile(folder / "x", 5, "test").write("he", 2); }
  REQUIRE(names_in(folder.path()).empty());
}

TEST_CASE(
    "whichever system call fails, the old file or the new one is there, whole, and the error says what "
    "failed",
    "[core][durable][error][A19]") {
  const test::TempDir folder;
  const auto path = folder / "x";
  int failures = 0;
  for (const int code : {ENOSPC, EIO}) {
    write_durably(path, "old", "test");
    for (int n = 1;; ++n) {
      FailingFileSystem files({.fail_at = n, .code = code});
      std::string message;
      try {
        write_durably(path, "new, and longer", "test", files);
      } catch (const Error& error) {
        message = error.what();
      }
      if (!files.failed()) break;
      ++failures;
      CAPTURE(n, files.failed_call(), message);
      const std::string text = test::read_text(path);
      const bool renamed = files.failed_call().ends_with(" directory");  // What makes the new name durable.
      REQUIRE((text == "old" || (renamed && text == "new, and longer")));
      REQUIRE(names_in(folder.path()) == std::vector<std::string>{"x"});
      write_durably(path, "old", "test");
      if (files.failed_call() == "close directory") continue;  // Nothing was written to it.
      CHECK_THAT(message, ContainsSubstring(folder.path().string()) &&
                              ContainsSubstring(std::generic_category().message(code)));
      if (files.failed_call() == "write")
        CHECK_THAT(message, ContainsSubstring("cannot write " + path.string()) &&
                                ContainsSubstring("15 bytes needed"));
    }
  }
  REQUIRE(failures >= 2 * 6);
}

TEST_CASE("a system that takes only a part of each write gets the rest", "[core][durable]") {
  const test::TempDir folder;
  FailingFileSystem files({.most_bytes = 3});
  const std::string text = "0123456789abcdef";
  write_durably(folder / "x", text, "test", files);
  REQUIRE(test::read_text(folder / "x") == text);
}

TEST_CASE("a directory has one writer at a time, and a claim ends with its scope", "[core][durable]") {
  const test::TempDir folder;
  {
    const DirectoryClaim first(folder.path());
    REQUIRE(!first.refused());
    REQUIRE(DirectoryClaim(folder.path()).refused());
  }
  REQUIRE(!DirectoryClaim(folder.path()).refused());
}
