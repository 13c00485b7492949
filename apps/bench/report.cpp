// SPDX-License-Identifier: MIT
// apps/bench/report.cpp - see the header.
#include "apps/bench/report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <vector>

#include "apps/common/command_line.h"
#include "apps/common/machine_text.h"
#include "apps/common/run_main.h"
#include "core/check.h"
#include "dist/launch.h"

namespace brigade::apps {

nlohmann::ordered_json to_json(const Spread& s) { return {{"p5", s.p5}, {"p50", s.p50}, {"p95", s.p95}}; }

Report::Report(int argc, char** argv) {
  json_["machine"] = machine_line();
  json_["date"] = fmt::format("{:%Y-%m-%d %H:%M:%S}Z", fmt::gmtime(std::time(nullptr)));
  json_["command"] = command_line(std::vector<std::string>(argv, argv + argc));
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
