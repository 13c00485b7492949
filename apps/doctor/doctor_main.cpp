// SPDX-License-Identifier: MIT
// apps/doctor/doctor_main.cpp - looks at the machine, the libraries and the launcher, and says what stands in the way
// of training and what to do about it. Under mpirun it looks at all ranks. Read first: checks.h.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "apps/common/run_main.h"
#include "apps/doctor/checks.h"
#include "core/check.h"

using namespace brigade;
using doctor::Finding;
using doctor::Status;

namespace {

struct Options {
  bool json = false;
  std::string out = ".";
  double timeout = 10;
  std::chrono::milliseconds timeout_ms() const {
    return std::chrono::milliseconds(static_cast<std::int64_t>(timeout * 1e3));
  }
};

void print(const std::vector<Finding>& findings, const Options& options) {
  if (options.json) {
    std::printf("%s\n", doctor::to_json(findings).dump(1).c_str());
    return;
  }
  for (const Finding& finding : findings) std::printf("%s\n", doctor::line_of(finding).c_str());
  const int faults = count(findings, Status::fault), warnings = count(findings, Status::warning);
  std::printf("%d checks: %d %s, %d %s\n", static_cast<int>(findings.size()), faults,
              faults == 1 ? "fault" : "faults", warnings, warnings == 1 ? "warning" : "warnings");
}

// What one process can tell. `joinable`: MPI may be started.
std::vector<Finding> look_here(const Options& options, bool& joinable) {
  std::vector<Finding> findings{
      doctor::check_processor(),   doctor::check_amx(),           doctor::check_onednn(),
      doctor::check_gpu(),         doctor::check_clock(),         doctor::check_cores(),
      doctor::check_threads(),     doctor::check_openmp(),        doctor::check_mpi(joinable),
      doctor::check_single_copy(), doctor::check_shared_memory(), doctor::check_disk(options.out)};
  if (dist::launch_environment().size == 1) findings.push_back(doctor::check_load());
  // Once is enough: under a launcher the ranks of a host have other things to do with their cores.
  if (dist::launch_environment().rank == 0)
    findings.push_back(doctor::check_threads_all_reduce(options.timeout_ms()));
  return findings;
}

// Adds what ranks can tell together; the same on all of them. Throws CommError.
std::vector<Finding> look_together(std::vector<Finding> findings, const Options& options) {
  const std::string placement = doctor::placement();  // Before any thread is tied to a core.
  const auto job = dist::join_mpi_job(options.timeout_ms());
  std::vector<std::vector<Finding>> by_rank;
  dist::run_ranks({.backend = "mpi", .group = {.timeout = options.timeout_ms()}, .job = job},
                  [&](dist::ProcessGroup& group) {
                    findings.push_back(doctor::check_binding(group.all_gather_text(placement)));
                    findings.push_back(doctor::check_all_reduce(group));
                    for (const std::string& text : group.all_gather_text(doctor::to_json(findings).dump()))
                      by_rank.push_back(doctor::findings_of(nlohmann::ordered_json::parse(text)));
                  });
  job->finish();
  return doctor::merged(by_rank);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Looks at processor, libraries, cores, MPI, memory and disk, and lets ranks add up. One finding a "
      "line: ok,\n"
      "warning or fault, what was found, and behind -> what to do about it.\n"
      "  doctor                     this process, and two ranks as threads\n"
      "  launch -n 4 -- doctor      four processes as they would train: their binding and their all-reduce\n"
      "Exit codes: 0 no fault (there may be warnings), 1 a fault, 2 a usage error.",
      "doctor");
  app.add_flag("--json", options.json, "Print the findings as JSON, and nothing else");
  app.add_option("--out", options.out, "Where a run would write")->type_name("DIR")->capture_default_str();
  app.add_option("--timeout", options.timeout, "Seconds that ranks wait for each other")
      ->check(CLI::Range(0.1, 1e6))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;  // CLI11 has a code for every kind of mistake; ours is 2.
  }

  bool fault = false;
  const int code = apps::run_main([&] {
    const bool speaks = dist::launch_environment().rank == 0;
    bool joinable = false;
    std::vector<Finding> findings = look_here(options, joinable);
    std::string failure;
    if (joinable) {
      try {
        findings = look_together(findings, options);
      } catch (const std::exception& error) {
        failure = error.what();
        findings.push_back(
            doctor::fault("all_reduce", failure,
                          "See who is missing; run launch -n 2 -- doctor, then add hosts one by one."));
      }
    }
    if (speaks) print(findings, options);
    // MPI may be stuck in a call: only ending at once ends.
    if (!failure.empty()) throw apps::EarlyExit{1, {}};
    // Only rank 0 ends badly: a launcher might end it, before its words are out, for another one's sake.
    fault = speaks && count(findings, Status::fault) > 0;
  });
  return code == 0 && fault ? 1 : code;
}
