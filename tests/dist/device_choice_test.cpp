// SPDX-License-Identifier: MIT
// tests/dist/device_choice_test.cpp - which carrier ranks choose, by what they say of themselves.
#include "dist/device_choice.h"

#include "tests/support/ranks.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::dist;
using namespace brigade::test;
using Catch::Matchers::Equals;

namespace {

RankPlace place(std::string host, std::int64_t process, std::string gpu, int nccl = 22809) {
  return {.host = std::move(host), .process = process, .gpu = std::move(gpu), .reason = {}, .nccl = nccl};
}

}  // namespace

TEST_CASE("ranks with a GPU each take NCCL, on one host or several", "[dist][device-choice]") {
  const DeviceChoice one = choose_carrier(std::vector{place("a", 1, "GPU-1"), place("a", 2, "GPU-2")});
  REQUIRE(one.kind == CarrierKind::nccl);
  REQUIRE_THAT(one.why, Equals("2 ranks have a GPU each"));
  // The same UUID on another host would be another device, as of emulated ones.
  REQUIRE(choose_carrier(std::vector{place("a", 1, "GPU-1"), place("b", 1, "GPU-1")}).kind ==
          CarrierKind::nccl);
  // Threads of one process may have a device each as well.
  REQUIRE(choose_carrier(std::vector{place("a", 1, "GPU-1"), place("a", 1, "GPU-2")}).kind ==
          CarrierKind::nccl);
}

TEST_CASE("ranks that share a GPU do not ask an NCCL that would refuse them", "[dist][device-choice]") {
  const DeviceChoice choice = choose_carrier(std::vector{place("a", 1, "GPU-1"), place("a", 2, "GPU-2"),
                                                         place("a", 3, "GPU-1"), place("a", 4, "GPU-2")});
  REQUIRE(choice.kind == CarrierKind::ipc);
  REQUIRE_THAT(choice.why, Equals("ranks 0, 2 share GPU-1, which NCCL 2.28.9 refuses"));
}

TEST_CASE("memory of a device is lent between few ranks of one host only", "[dist][device-choice]") {
  const DeviceChoice hosts =
      choose_carrier(std::vector{place("a", 1, "GPU-1"), place("a", 2, "GPU-1"), place("b", 1, "GPU-2")});
  REQUIRE(hosts.kind == CarrierKind::staged);
  REQUIRE_THAT(hosts.why, Equals("ranks 0, 1 share GPU-1, which NCCL 2.28.9 refuses, and the ranks are on "
                                 "several hosts"));
  std::vector<RankPlace> many;
  for (int rank = 0; rank <= kMostRanksByIpc; ++rank) many.push_back(place("a", rank, "GPU-1"));
  REQUIRE(choose_carrier(many).kind == CarrierKind::staged);
  many.pop_back();
  REQUIRE(choose_carrier(many).kind == CarrierKind::ipc);
}

TEST_CASE("processes that share a GPU take an NCCL that lets them, threads of one process do not",
          "[dist][device-choice]") {
  const auto choose = [](std::int64_t second, int nccl) {
    return choose_carrier(std::vector{place("a", 1, "GPU-1", 23004), place("a", second, "GPU-1", nccl)});
  };
  REQUIRE(choose(2, 23004).kind == CarrierKind::nccl_shared);
  REQUIRE_THAT(choose(2, 23004).why, ContainsSubstring("NCCL 2.30.4 can do"));
  REQUIRE(choose(1, 23004).kind == CarrierKind::ipc);
  REQUIRE_THAT(choose(1, 23004).why, Equals("ranks 0, 1 share GPU-1 in one process"));
  // The oldest library decides.
  REQUIRE(choose(2, 22809).kind == CarrierKind::ipc);
}

TEST_CASE("without NCCL ranks lend each other memory of their devices", "[dist][device-choice]") {
  const DeviceChoice choice = choose_carrier(std::vector{place("a", 1, "GPU-1", 0), place("a", 2, "GPU-2")});
  REQUIRE(choice.kind == CarrierKind::ipc);
  REQUIRE_THAT(choice.why, ContainsSubstring("not compiled in"));
}

TEST_CASE("one rank without a GPU keeps all on the CPU, and is named with its reason",
          "[dist][device-choice]") {
  RankPlace without = place("b", 2, "");
  without.reason = "no CUDA device: no NVIDIA driver";
  const DeviceChoice choice = choose_carrier(std::vector{place("a", 1, "GPU-1"), without});
  REQUIRE(choice.kind == CarrierKind::none);
  REQUIRE_THAT(choice.why, Equals("rank 1 on b: no CUDA device: no NVIDIA driver"));
  REQUIRE_THAT(choose_carrier(std::vector{without}).why, Equals("no CUDA device: no NVIDIA driver"));
}

TEST_CASE("a rank alone needs no carrier", "[dist][device-choice]") {
  REQUIRE(choose_carrier(std::vector{place("a", 1, "GPU-1")}).kind == CarrierKind::lone);
}

TEST_CASE("ranks of a host take its devices in turns", "[dist][device-choice]") {
  REQUIRE(device_index(0, 2) == 0);
  REQUIRE(device_index(1, 2) == 1);
  REQUIRE(device_index(2, 2) == 0);
  REQUIRE(device_index(3, 1) == 0);
}

TEST_CASE("an unknown device is an error that lists the choices", "[dist][device-choice][error]") {
  REQUIRE_THROWS_WITH(run_ranks({.device = "gpu"}, [](ProcessGroup&) {}),
                      ContainsSubstring("got \"gpu\"; choose from auto, cpu, cuda"));
}

TEST_CASE("a device that is asked for and not there is the same error on all ranks, auto takes the CPU",
          "[dist][device-choice][error]") {
  if (device_count(DeviceType::cuda) > 0) return;  // tests/dist/device_group_test.cpp has the other half.
  REQUIRE_THROWS_WITH(run_ranks({.ranks = 2, .device = "cuda"}, [](ProcessGroup&) {}),
                      ContainsSubstring("device cuda: needs a GPU for every rank; rank 0 on ") &&
                          ContainsSubstring(device_status(DeviceType::cuda)));
  run_ranks({.ranks = 2, .device = "auto"},
            [](ProcessGroup& group) { require(group.device() == Device{}, "not the CPU"); });
}

TEST_CASE("a modelled network carries no tensors of a device", "[dist][device-choice][error]") {
  REQUIRE_THROWS_WITH(run_ranks({.device = "cuda", .network = NetworkModel()}, [](ProcessGroup&) {}),
                      ContainsSubstring("a modelled network carries tensors of the CPU; got device cuda"));
}
