// SPDX-License-Identifier: MIT
// apps/bench/report.cpp - see the header.
#include "apps/bench/report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <sstream>

#include "apps/common/run_main.h"
#include "core/check.h"
#include "core/parallel.h"
#include "dist/launch.h"

namespace brigade::apps {
namespace {

// What follows the colon of the first line of /proc/cpuinfo that begins with `key`; empty if there is none.
std::string cpuinfo(std::string_view key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key)) return line.substr(std::min(line.size(), line.find(':') + 2));
  return {};
}

// The instruction sets that decide speed here, in the words of people.
std::string instruction_sets() {
  constexpr std::pair<const char*, const char*> kNames[] = {{"avx2", "AVX2"},
                                                            {"avx512f", "AVX-512"},
                                                            {"avx512_bf16", "AVX512-BF16"},
                                                            {"avx512_vnni", "VNNI"},
                                                            {"amx_bf16", "AMX-BF16"},
                                                            {"amx_int8", "AMX-INT8"},
                                                            {"asimd", "Advanced SIMD"},
                                                            {"sve", "SVE"}};
  std::istringstream flags(cpuinfo("flags") + " " + cpuinfo("Features"));
  std::string out;
  std::vector<std::string> have;
  for (std::string flag; flags >> flag;) have.push_back(flag);
  for (const auto& [flag, name] : kNames)
    if (std::find(have.begin(), have.end(), flag) != have.end()) out += std::string(", ") + name;
  return out;
}

std::string cpu_name() {
  std::string name = cpuinfo("model name");
  return name.empty() ? "unknown processor" : name;
}

// The command as it could be typed again.
std::string quoted(int argc, char** argv) {
  std::string out;
  for (int i = 0; i < argc; ++i) {
    const std::string word = argv[i];
    const bool plain =
        !word.empty() && word.find_first_of(" '\"\\$`&|;<>()*?[]#~!{}\t\n") == std::string::npos;
    out += str(i > 0 ? " " : "", plain ? word : "'" + word + "'");
  }
  return out;
}

}  // namespace

std::string machine_line() {
  const int cores = available_cores();
  return str(cpu_name(), ", ", cores, cores == 1 ? " core" : " cores", instruction_sets());
}

nlohmann::ordered_json to_json(const Spread& s) { return {{"p5", s.p5}, {"p50", s.p50}, {"p95", s.p95}}; }

Report::Report(int argc, char** argv) {
  json_["machine"] = machine_line();
  json_["date"] = fmt::format("{:%Y-%m-%d %H:%M:%S}Z", fmt::gmtime(std::time(nullptr)));
  json_["command"] = quoted(argc, argv);
  json_["rows"] = nlohmann::ordered_json::array();
}

void Report::add_flags(CLI::App& app) {
  app.add_option("--json", path_,
                 "Write all figures as JSON to FILE; - writes them to standard output, and nothing else")
      ->type_name("FILE|-");
}

void Report::start() {
  if (speaks_ && !path_.empty() && path_ != "-") {
    const std::ofstream file(path_);
    BRIGADE_CHECK(file.good(), "--json: cannot write ", path_, "; ", std::strerror(errno));
  }
  line(str("machine  ", json_["machine"].get<std::string>()));
  line(str("date     ", json_["date"].get<std::string>()));
  line(str("command  ", json_["command"].get<std::string>()));
  load_ = LoadMeter();
}

void Report::line(const std::string& text) const {
  if (!speaks_ || path_ == "-") return;
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

void Report::finish(double own) {
  const double cores = own < 0 ? load_.foreign_cores() : load_.foreign_cores(own);
  json_["foreign_cores"] = cores;
  if (cores < 0)
    line("the system does not tell whether others were computing");
  else if (cores >= 0.05)
    line(fmt::format("others used {:.0f} % of a core during the run: do not trust these figures",
                     100 * cores));
  else
    line(fmt::format("others used {:.0f} % of a core during the run", 100 * cores));
  if (!speaks_ || path_.empty()) return;
  const std::string text = json_.dump(1) + "\n";
  if (path_ == "-") {
    fmt::print("{}", text);
    return;
  }
  std::ofstream file(path_);
  file << text << std::flush;
  BRIGADE_CHECK(file.good(), "--json: cannot write ", path_, "; ", std::strerror(errno));
}

double own_cpu_of_all(dist::ProcessGroup& group, double since) {
  Tensor own = Tensor::from(std::vector<double>{own_cpu_seconds() - since}, {1});
  // Processes each count their own time; threads of one process share it.
  const bool processes = dist::launch_environment().size > 1;
  group.all_reduce(own, processes ? dist::Reduce::sum : dist::Reduce::max).wait();
  return own.item();
}

int run_bench(CLI::App& app, int argc, char** argv, const std::function<void()>& body) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return run_main(body);
}

}  // namespace brigade::apps
