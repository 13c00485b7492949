// SPDX-License-Identifier: MIT
// tests/dist/torchrun_test.cpp - the environment that torchrun gives a rank: what is read from it, and what is refused.
#include <cstdlib>
#include <map>

#include "dist/tcp/torchrun_job.h"
#include "tests/support/ranks.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::dist;
using namespace brigade::test;
using Catch::Matchers::Equals;
using Catch::Matchers::StartsWith;

namespace {

constexpr const char* kVariables[] = {"RANK",
                                      "WORLD_SIZE",
                                      "LOCAL_RANK",
                                      "LOCAL_WORLD_SIZE",
                                      "MASTER_ADDR",
                                      "MASTER_PORT",
                                      "TORCHELASTIC_USE_AGENT_STORE"};
using Variables = std::map<std::string, std::string>;

// action() with exactly these variables set.
template <class Action>
auto with(const Variables& variables, const Action& action) {
  struct Restore {
    Variables before;
    ~Restore() {
      for (const char* name : kVariables) unsetenv(name);
      for (const auto& [name, value] : before) setenv(name.c_str(), value.c_str(), 1);
    }
  } restore;
  for (const char* name : kVariables) {
    if (const char* const value = std::getenv(name)) restore.before[name] = value;
    unsetenv(name);
  }
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  return action();
}

std::string refused(const Variables& variables) {
  return with(variables, [] { return thrown_by([] { static_cast<void>(torchrun_environment()); }); });
}

}  // namespace

TEST_CASE("torchrun's environment says rank, size and where rank 0 is", "[dist][tcp]") {
  const Variables set{{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "node7"}, {"MASTER_PORT", "29500"}};
  with(set, [] {
    const auto self = torchrun_environment();
    REQUIRE(self);
    REQUIRE(self->rank == 1);
    REQUIRE(self->size == 4);
    REQUIRE(self->local_size == 1);  // Not known: one a host.
    REQUIRE_THAT(self->master.text(), Equals("node7:29500"));
    const LaunchEnvironment launched = launch_environment();
    if (!launched.mpi) REQUIRE(launched.torchrun);
    return 0;
  });
  Variables more = set;
  more["LOCAL_WORLD_SIZE"] = "2";
  // torchrun's own process is at the port.
  more["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  with(more, [] {
    REQUIRE(torchrun_environment()->local_size == 2);
    REQUIRE(torchrun_environment()->master.port == 29501);
    return 0;
  });
  more["MASTER_ADDR"] = "127.0.0.1";
  more.erase("LOCAL_WORLD_SIZE");
  REQUIRE(with(more, [] { return torchrun_environment()->local_size; }) == 4);
  // Not started so, and nobody to meet.
  REQUIRE_FALSE(with({{"RANK", "1"}}, [] { return torchrun_environment().has_value(); }));
  REQUIRE(with({{"RANK", "0"}, {"WORLD_SIZE", "1"}}, [] { return torchrun_environment()->size; }) == 1);
}

TEST_CASE("a launcher of MPI comes before torchrun's environment", "[dist][tcp]") {
  if (under_mpi()) return;
  setenv("PMI_RANK", "0", 1);
  setenv("PMI_SIZE", "3", 1);
  const LaunchEnvironment launched =
      with({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1"}},
           launch_environment);
  unsetenv("PMI_RANK");
  unsetenv("PMI_SIZE");
  REQUIRE(launched.mpi);
  REQUIRE_FALSE(launched.torchrun);
  REQUIRE(launched.size == 3);
}

TEST_CASE("an environment that makes no sense is refused in one line, and is none for who only asks",
          "[dist][tcp][error]") {
  const Variables good{
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}};
  const auto but = [&](const std::string& name, const std::string& value) {
    Variables out = good;
    out[name] = value;
    return out;
  };
  const std::string who = "Error: torchrun's environment: ";
  REQUIRE_THAT(refused(but("RANK", "2")),
               Equals(who + "RANK must be below WORLD_SIZE; got RANK=2, WORLD_SIZE=2"));
  REQUIRE_THAT(refused(but("RANK", "one")),
               Equals(who + "RANK must be a number from 0 to 65535; got \"one\""));
  REQUIRE_THAT(refused(but("RANK", "1x")), StartsWith(who + "RANK must be a number"));
  REQUIRE_THAT(refused(but("WORLD_SIZE", "0")), StartsWith(who + "WORLD_SIZE must be a number from 1"));
  REQUIRE_THAT(refused(but("LOCAL_RANK", "2")), StartsWith(who + "LOCAL_RANK must be a number from 0 to 1"));
  REQUIRE_THAT(refused(but("MASTER_PORT", "0")),
               StartsWith(who + "MASTER_PORT must be a number from 1 to 65535"));
  REQUIRE_THAT(refused(but("MASTER_PORT", "")),
               ContainsSubstring("MASTER_PORT") && ContainsSubstring("it is not set"));
  REQUIRE_THAT(refused(but("MASTER_ADDR", "")),
               StartsWith(who + "MASTER_ADDR must be where rank 0 can be reached"));
  // In one line, whatever is in them.
  REQUIRE_THAT(refused(but("RANK", "1\n2")),
               Equals(who + "RANK must be a number from 0 to 65535; got \"1?2\""));
  REQUIRE_THAT(
      refused(but("MASTER_ADDR", "node1\r\nnode2")),
      Equals(who + "MASTER_ADDR must be a name or number of at most 253 printable characters; got 12, "
                   "\"node1??node2\""));
  REQUIRE_THAT(refused(but("MASTER_ADDR", std::string(254, 'a'))),
               StartsWith(who + "MASTER_ADDR must be a name or number of at most 253") &&
                   ContainsSubstring("got 254, \"aaa"));
  REQUIRE(refused(but("MASTER_ADDR", std::string(253, 'a'))).empty());
  Variables last_port = but("MASTER_PORT", "65535");
  REQUIRE(refused(last_port).empty());
  last_port["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  REQUIRE_THAT(refused(last_port), StartsWith(who + "MASTER_PORT must be below 65535 where torchrun's own"));
  if (under_mpi()) return;
  with(but("RANK", "2"), [] {
    REQUIRE_FALSE(launch_environment().torchrun);
    REQUIRE_THROWS_WITH(run_ranks({}, [](ProcessGroup&) {}),
                        ContainsSubstring("RANK must be below WORLD_SIZE"));
    run_ranks({.backend = "threads"}, [](ProcessGroup&) {});  // Who does not ask does not hear.
    return 0;
  });
  REQUIRE_THROWS_WITH(run_ranks({.backend = "tcp"}, [](ProcessGroup&) {}),
                      ContainsSubstring("backend tcp: needs RANK, WORLD_SIZE above 1"));
}
