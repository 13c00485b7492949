// SPDX-License-Identifier: MIT
// tests/data/find_data_test.cpp - where data is looked for, and the script that puts it there.
#include "data/find_data.h"

#include <sys/wait.h>

#include <cstdlib>

#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::data;
namespace fs = std::filesystem;

namespace {

/// Sets or unsets an environment variable until the end of the scope.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    set(value);
  }
  ~Variable() { set(old_ ? old_->c_str() : nullptr); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void set(const char* value) { value ? setenv(name_, value, 1) : unsetenv(name_); }
  const char* name_;
  std::optional<std::string> old_;
};

struct Result {
  int status;
  std::string out, err;
};

// Runs the script with a folder of fake tools first in PATH.
Result get_cifar10(const test::TempDir& dir, const std::string& arguments) {
  const std::string command =
      str("PATH='", (dir / "bin").string(), "':\"$PATH\" XDG_CACHE_HOME='", (dir / "cache").string(),
          "' bash '", BRIGADE_SOURCE_DIR, "/scripts/get_cifar10.sh' ", arguments, " >'",
          (dir / "out").string(), "' 2>'", (dir / "err").string(), "'");
  const int status = std::system(command.c_str());
  return {WEXITSTATUS(status), test::read_text(dir / "out"), test::read_text(dir / "err")};
}

void run(const std::string& command) {
  INFO(command);
  REQUIRE(std::system(command.c_str()) == 0);
}

// An archive of six sparse files; `bytes` is the size of data_batch_3.bin.
fs::path make_archive(const test::TempDir& dir, const std::string& name, std::uintmax_t bytes = 30'730'000) {
  const fs::path source = dir / "source/cifar-10-batches-bin";
  for (int i = 1; i <= 5; ++i)
    test::write_zeros(source / str("data_batch_", i, ".bin"), i == 3 ? bytes : 30'730'000);
  test::write_zeros(source / "test_batch.bin", 30'730'000);
  run(str("tar --sparse -caf '", (dir / name).string(), "' -C '", (dir / "source").string(),
          "' cifar-10-batches-bin"));
  return dir / name;
}

void fake_tool(const test::TempDir& dir, const std::string& name, const std::string& body) {
  fs::create_directories(dir / "bin");
  std::ofstream(dir / ("bin/" + name)) << "#!/bin/sh\n" << body << "\n";
  fs::permissions(dir / ("bin/" + name), fs::perms::owner_all);
}

std::size_t entries(const fs::path& directory) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(directory)) ++count;
  return count;
}

}  // namespace

TEST_CASE("data is looked for in the flag, the variable and the cache, in this order", "[data][find]") {
  const test::TempDir dir;
  const Variable cache("XDG_CACHE_HOME", (dir / "xdg").c_str());
  const Variable data("BRIGADE_DATA", (dir / "env").c_str());
  const fs::path in_cache = dir / "xdg/brigade", in_env = dir / "env";

  DataSearch search = locate(std::nullopt);
  REQUIRE_FALSE(search.directory);
  REQUIRE(search.looked_at ==
          std::vector<std::string>{"$BRIGADE_DATA " + in_env.string(), in_cache.string()});

  fs::create_directories(in_cache / "cifar-10-batches-bin");
  REQUIRE(locate(std::nullopt).directory == in_cache);
  REQUIRE_FALSE(locate(std::nullopt, CifarKind::cifar100).directory);
  test::write_zeros(in_env / "test_batch.bin", 1);  // The folder of files itself serves too.
  REQUIRE(locate(std::nullopt).directory == in_env);
  // What the user named is taken even if nothing is there: other data instead would be worse than an error.
  REQUIRE(locate(fs::path("/given")).directory == fs::path("/given"));
}

TEST_CASE("the cache folder follows XDG_CACHE_HOME, then HOME, if they are absolute", "[data][find]") {
  const Variable data("BRIGADE_DATA", nullptr);
  const Variable home("HOME", "/home/someone");
  {
    const Variable cache("XDG_CACHE_HOME", nullptr);
    REQUIRE(cache_directory() == fs::path("/home/someone/.cache/brigade"));
  }
  const Variable cache("XDG_CACHE_HOME", "relative");
  REQUIRE(cache_directory() == fs::path("/home/someone/.cache/brigade"));
  const Variable no_home("HOME", nullptr);
  REQUIRE_FALSE(cache_directory());
  REQUIRE(locate(std::nullopt).looked_at.empty());
}

TEST_CASE("get_cifar10.sh unpacks a local archive, once, where the programs look", "[data][find][script]") {
  const test::TempDir dir;
  const auto name = GENERATE(as<std::string>(), "a.tar.gz", "a.tar.xz");
  const fs::path archive = make_archive(dir, name);
  fake_tool(dir, "curl", "exit 99");  // Must not be called.
  for (const char* message : {"unpacked", "complete already"}) {
    const Result result = get_cifar10(dir, str("--from '", archive.string(), "'"));
    INFO(result.err);
    REQUIRE(result.status == 0);
    REQUIRE(result.out == str((dir / "cache/brigade").string(), "\n"));
    REQUIRE_THAT(result.err, ContainsSubstring(message));
    REQUIRE(entries(dir / "cache/brigade") == 1);  // No leftovers.
  }
  const Variable cache("XDG_CACHE_HOME", (dir / "cache").c_str());
  const Variable data("BRIGADE_DATA", nullptr);
  REQUIRE(
      read_cifar(locate(std::nullopt).directory.value(), {.limit_train = 1, .limit_test = 1}).train.size() ==
      1);
}

TEST_CASE("get_cifar10.sh completes a damaged folder", "[data][find][script]") {
  const test::TempDir dir;
  const fs::path archive = make_archive(dir, "a.tar.gz"), folder = dir / "here/cifar-10-batches-bin";
  test::write_zeros(folder / "data_batch_1.bin", 17);
  const Result result =
      get_cifar10(dir, str("--dir '", (dir / "here").string(), "' --from '", archive.string(), "'"));
  INFO(result.err);
  REQUIRE(result.status == 0);
  REQUIRE(fs::file_size(folder / "data_batch_1.bin") == 30'730'000);
  REQUIRE(entries(dir / "here") == 1);
}

TEST_CASE("get_cifar10.sh names what is wrong with an archive and leaves nothing behind",
          "[data][find][script][error]") {
  const test::TempDir dir;
  std::string archive, message;
  SECTION("a truncated file inside") {
    archive = make_archive(dir, "a.tar.gz", 30'729'999);
    message = "data_batch_3.bin has 30729999 bytes instead of 30730000";
  }
  SECTION("not an archive") {
    test::write_zeros(dir / "a.tar.gz", 1000);
    archive = dir / "a.tar.gz";
    message = str("cannot unpack ", archive);
  }
  SECTION("an archive of something else") {
    test::write_zeros(dir / "other/file", 10);
    archive = dir / "a.tar.gz";
    run(str("tar -czf '", archive, "' -C '", dir.path().string(), "' other"));
    message = "holds no folder cifar-10-batches-bin";
  }
  SECTION("no such file") {
    archive = "/no/such.tar.gz";
    message = "no such archive: /no/such.tar.gz";
  }
  SECTION("the official size with other contents") {
    test::write_zeros(dir / "a.tar.gz", 170'052'171);
    archive = dir / "a.tar.gz";
    message = "instead of c32a1d4ab5d03f1284b67883e8d87530";
  }
  const Result result = get_cifar10(dir, str("--from '", archive, "'"));
  REQUIRE(result.status == 1);
  REQUIRE(result.out == "");
  REQUIRE_THAT(result.err, ContainsSubstring("error: ") && ContainsSubstring(message));
  REQUIRE((!fs::exists(dir / "cache/brigade") || entries(dir / "cache/brigade") == 0));
}

TEST_CASE("get_cifar10.sh ends with 1 when there is no network or the download is not the data set",
          "[data][find][script][error]") {
  const test::TempDir dir;
  std::string message;
  SECTION("no network") {
    fake_tool(dir, "curl", "echo 'curl: (6) Could not resolve host' >&2; exit 6");
    message = "download failed (no network?); give a local archive with --from";
  }
  SECTION("another file, as from a captive portal") {
    fake_tool(dir, "curl", R"(while [ "$1" != --output ]; do shift; done; echo hello >"$2")");
    message =
        "downloaded file has MD5 b1946ac92492d2347c6235b4d2611184 instead of "
        "c32a1d4ab5d03f1284b67883e8d87530";
  }
  const Result result = get_cifar10(dir, "");
  REQUIRE(result.status == 1);
  REQUIRE_THAT(result.err, ContainsSubstring(message));
  REQUIRE(entries(dir / "cache/brigade") == 0);
}

TEST_CASE("get_cifar10.sh explains itself and lists its choices", "[data][find][script]") {
  const test::TempDir dir;
  const Result help = get_cifar10(dir, "--help");
  REQUIRE(help.status == 0);
  REQUIRE_THAT(help.out, ContainsSubstring("--from ARCHIVE"));
  const Result unknown = get_cifar10(dir, "--fetch");
  REQUIRE(unknown.status == 2);
  REQUIRE_THAT(unknown.err, ContainsSubstring("\"--fetch\"; choose from --dir, --from, --help"));
  REQUIRE(get_cifar10(dir, "--from").status == 2);
}
