// SPDX-License-Identifier: MIT
// tests/core/regular_file_test.cpp - what is no regular file is refused at once, by what it is.
#include "core/regular_file.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "core/check.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

using namespace brigade;
namespace fs = std::filesystem;

namespace {

std::string refusal(const fs::path& path, std::int64_t max_bytes = 100) {
  try {
    RegularFile file(path, "op: it: ", max_bytes);
    return "opened";
  } catch (const Error& error) {
    return error.what();
  }
}

void make_socket(const fs::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  const int descriptor = socket(AF_UNIX, SOCK_STREAM, 0);
  REQUIRE(bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  close(descriptor);
}

}  // namespace

TEST_CASE("directories, pipes, sockets and devices are refused without waiting, behind links too",
          "[core][files][error]") {
  const test::TempDir dir;
  REQUIRE(mkfifo((dir / "pipe").c_str(), 0600) == 0);
  make_socket(dir / "socket");
  fs::create_symlink("/dev/zero", dir / "link");
  fs::create_symlink(dir / "loop", dir / "loop");
  CHECK(refusal(dir.path()) == "op: it: must be a regular file; got a directory");
  CHECK(refusal(dir / "pipe") == "op: it: must be a regular file; got a pipe");
  CHECK(refusal(dir / "socket") == "op: it: must be a regular file; got a socket");
  CHECK(refusal("/dev/zero") == "op: it: must be a regular file; got a device");
  CHECK(refusal(dir / "link") == "op: it: must be a regular file; got a device");
  CHECK_THAT(refusal(dir / "loop"), ContainsSubstring("cannot be read; Too many levels of symbolic links"));
  CHECK(refusal(dir / "absent") == "op: it: cannot be read; No such file or directory");
  CHECK(refusal("") == "op: it: cannot be read; No such file or directory");
}

TEST_CASE("a name with a zero byte is not cut off there", "[core][files][error]") {
  const test::TempDir dir;
  std::ofstream(dir / "file") << "text";
  CHECK(refusal((dir / "file").string() + std::string("\0.json", 6)) ==
        "op: it: cannot be read; its name has a zero byte");
}

TEST_CASE("a file above its limit is refused with both sizes, before a byte is read",
          "[core][files][error]") {
  const test::TempDir dir;
  test::write_zeros(dir / "file", 100);
  CHECK(refusal(dir / "file") == "opened");
  test::write_zeros(dir / "file", std::uintmax_t{1} << 40);  // Sparse.
  CHECK(refusal(dir / "file") == "op: it: may have 100 bytes; got 1099511627776");
}

TEST_CASE("a file is read piece by piece and never beyond its end", "[core][files]") {
  const test::TempDir dir;
  std::ofstream(dir / "file") << "abcdef";
  fs::create_symlink(dir / "file", dir / "link");
  RegularFile file(dir / "link", "op: it: ");
  CHECK(file.bytes() == 6);
  char two[2];
  file.read(two, 2);
  CHECK(std::string(two, 2) == "ab");
  CHECK_THROWS_WITH(file.read(two, 5), "op: it: the file ended while it was read");
  CHECK(file.read_rest() == "cdef");
  CHECK(file.read_rest().empty());
}

TEST_CASE("a file that shrinks while it is read is an error", "[core][files][error]") {
  const test::TempDir dir;
  test::write_zeros(dir / "file", 50);
  RegularFile file(dir / "file", "op: it: ");
  fs::resize_file(dir / "file", 20);
  CHECK_THROWS_WITH(file.read_rest(), "op: it: the file ended while it was read");
}
