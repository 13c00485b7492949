// SPDX-License-Identifier: MIT
// apps/report/report_main.cpp - makes the page of a run again from its files, or compares runs.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "apps/common/run_main.h"
#include "apps/report/write_report.h"

using namespace brigade;

int main(int argc, char** argv) {
  std::vector<std::string> directories;
  std::string out;
  CLI::App app(
      "Makes report.html from the files that train_resnet18 --out DIR left: the timeline of a step, what "
      "each bucket\n"
      "did, step times, loss and accuracy. Several directories are compared with the first.");
  app.name("report");
  app.add_option("RUN_DIR", directories, "Directories given to --out")->required();
  app.add_option("--out", out, "The page; its pictures are written beside it  [RUN_DIR/report.html]")
      ->type_name("FILE");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;  // CLI11 has a code for every kind of mistake; ours is 2.
  }

  return apps::run_main([&] {
    const std::vector<std::filesystem::path> runs(directories.begin(), directories.end());
    const std::filesystem::path file =
        out.empty() ? runs.front() / "report.html" : std::filesystem::path(out);
    report::write_report(runs, file);
    std::printf("%s\n", file.c_str());
  });
}
