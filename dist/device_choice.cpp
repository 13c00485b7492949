// SPDX-License-Identifier: MIT
// dist/device_choice.cpp - places are gathered as texts, and everybody draws the same conclusion.
#include "dist/device_choice.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <utility>
#include <vector>

#include "core/runtime.h"
#include "dist/staged/staged_carrier.h"

namespace brigade::dist {
namespace {

constexpr std::array<std::string_view, 3> kDevices{"auto", "cpu", "cuda"};

std::string rank_list(const std::vector<int>& ranks) {
  std::string out;
  for (const int rank : ranks) out += str(out.empty() ? "" : ", ", rank);
  return (ranks.size() == 1 ? "rank " : "ranks ") + out;
}

std::string version_text(int code) { return str(code / 10000, ".", code / 100 % 100, ".", code % 100); }

std::string host_name() {
  if (const char* told = std::getenv("BRIGADE_HOST")) return told;
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

// Fields on lines; a reason is one line.
std::string encode(const RankPlace& p) {
  std::string reason = p.reason;
  std::replace(reason.begin(), reason.end(), '\n', ' ');
  return str(p.host, "\n", p.process, "\n", p.gpu, "\n", reason, "\n", p.nccl, "\n");
}

RankPlace decode(std::string text) {
  const auto line = [&text] {
    const std::size_t end = text.find('\n');
    BRIGADE_CHECK(end != std::string::npos, "device: a rank's place is cut off");
    std::string out = text.substr(0, end);
    text.erase(0, end + 1);
    return out;
  };
  RankPlace place;
  place.host = line();
  place.process = std::stoll(line());
  place.gpu = line();
  place.reason = line();
  place.nccl = std::stoi(line());
  return place;
}

// Nothing in here may throw on one rank only: the others wait for what it says.
RankPlace place_of(int local_rank, std::string host, const std::string& no_gpu_because, Device& device) {
  RankPlace place{.host = std::move(host), .process = getpid(), .gpu = {}, .reason = no_gpu_because};
  if (!no_gpu_because.empty()) return place;
  try {
    const int devices = device_count(DeviceType::cuda);
    if (devices == 0) {
      place.reason = device_status(DeviceType::cuda);
      return place;
    }
    device = {DeviceType::cuda, device_index(local_rank, devices)};
    place.nccl = nccl_version();
    static_cast<void>(runtime(device));  // It can be used.
    place.gpu = device_uuid(device);
  } catch (const std::exception& e) {
    place.reason = e.what();
  }
  return place;
}

}  // namespace

std::span<const std::string_view> device_names() { return kDevices; }

DeviceChoice choose_carrier(std::span<const RankPlace> places) {
  const int size = static_cast<int>(places.size());
  const auto at = [&](int rank) -> const RankPlace& { return places[static_cast<std::size_t>(rank)]; };
  // Not one rank alone on the CPU: its tensors would not meet the others'.
  for (int rank = 0; rank < size; ++rank)
    if (at(rank).gpu.empty())
      return {CarrierKind::none,
              size == 1 ? at(rank).reason : str("rank ", rank, " on ", at(rank).host, ": ", at(rank).reason)};
  if (size == 1) return {CarrierKind::lone, ""};

  int nccl = at(0).nccl;
  std::map<std::pair<std::string, std::string>, std::vector<int>> users;  // Of each device.
  for (int rank = 0; rank < size; ++rank) {
    nccl = std::min(nccl, at(rank).nccl);
    users[{at(rank).host, at(rank).gpu}].push_back(rank);
  }
  const bool one_host = std::all_of(places.begin(), places.end(),
                                    [&](const RankPlace& place) { return place.host == at(0).host; });
  const auto without_nccl = [&](std::string why) {
    if (!one_host) why += ", and the ranks are on several hosts";
    const bool may_lend = one_host && size <= kMostRanksByIpc;
    return DeviceChoice{may_lend ? CarrierKind::ipc : CarrierKind::staged, std::move(why)};
  };
  if (nccl == 0) return without_nccl("NCCL is not compiled in");
  const auto shared =
      std::find_if(users.begin(), users.end(), [](const auto& u) { return u.second.size() > 1; });
  if (shared == users.end()) return {CarrierKind::nccl, str(size, " ranks have a GPU each")};

  const std::string who = str(rank_list(shared->second), " share ", shared->first.second);
  if (nccl < kNcclSharesDevices)
    return without_nccl(str(who, ", which NCCL ", version_text(nccl), " refuses"));
  for (const auto& [device, ranks] : users)
    for (std::size_t i = 1; i < ranks.size(); ++i)
      if (at(ranks[i]).process == at(ranks[0]).process) return without_nccl(str(who, " in one process"));
  return {CarrierKind::nccl_shared, str(who, ", which NCCL ", version_text(nccl), " can do")};
}

std::unique_ptr<Transport> with_device(std::unique_ptr<Transport> host, std::string_view wanted,
                                       std::chrono::milliseconds timeout, const std::string& no_gpu_because) {
  std::string choices;
  for (const std::string_view name : kDevices) choices += str(choices.empty() ? "" : ", ", name);
  BRIGADE_CHECK(std::find(kDevices.begin(), kDevices.end(), wanted) != kDevices.end(),
                "device: must be a known name; got \"", wanted, "\"; choose from ", choices);
  if (wanted == "cpu") return host;

  const std::string here = host_name();
  const std::vector<std::string> hosts = gather_texts(*host, here);
  const auto local_rank = std::count(hosts.begin(), hosts.begin() + host->rank(), here);
  Device device;
  const RankPlace mine = place_of(static_cast<int>(local_rank), here, no_gpu_because, device);
  std::vector<RankPlace> places;
  for (const std::string& text : gather_texts(*host, encode(mine))) places.push_back(decode(text));
  DeviceChoice choice = choose_carrier(places);
  BRIGADE_CHECK(wanted != "cuda" || choice.kind != CarrierKind::none,
                "device cuda: needs a GPU for every rank; ", choice.why);

  std::unique_ptr<Carrier> carrier;
  switch (choice.kind) {
    case CarrierKind::none:
      host->set_no_device(std::move(choice.why));
      return host;
    case CarrierKind::lone:
      carrier = make_lone_carrier();
      break;
    case CarrierKind::nccl_shared:
      setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);  // What the user has set stays.
      [[fallthrough]];
    case CarrierKind::nccl:
      carrier = make_nccl(*host, device, timeout);
      break;
    case CarrierKind::ipc: {
      std::string why_not;
      carrier = make_ipc(*host, device, why_not);
      if (!carrier) choice.why += str(", and they cannot lend each other its memory: ", why_not);
      break;
    }
    case CarrierKind::staged:
      break;
  }
  if (!carrier) carrier = make_staged_carrier(*host, device);
  if (const std::string mpi = mpi_and_cuda(); !mpi.empty() && choice.kind != CarrierKind::lone)
    choice.why += "; " + mpi;
  return make_device_transport(std::move(host), std::move(carrier), device, choice.why);
}

}  // namespace brigade::dist
