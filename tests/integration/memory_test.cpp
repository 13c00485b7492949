// SPDX-License-Identifier: MIT
// tests/integration/memory_test.cpp - lets the n-th request for memory fail in reading each kind of file and in a step
// of training: it must come out as std::bad_alloc or Error, leak nothing, and leave a process in which the same works.
// CTest samples n; `test_memory "[full]"` takes all up to 2,000.
#include <functional>
#include <memory>
#include <new>

#include "apps/report/recorded_run.h"
#include "apps/telemetry/profile.h"
#include "autograd/engine.h"
#include "core/runtime.h"
#include "dist/launch.h"
#include "nn/optim/sgd.h"
#include "tests/fuzz/targets.h"
#include "tests/support/failing_memory.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "tests/support/training.h"

using namespace brigade;

namespace {

std::string seed(const std::string& name) {
  return test::read_text(std::filesystem::path(BRIGADE_SOURCE_DIR) / "tests/fuzz/corpus" / name);
}

struct Held {
  std::int64_t objects, tensor_bytes;
  bool operator==(const Held&) const = default;
};
Held held() { return {test::live_objects(), runtime(Device{}).memory_stats().in_use_bytes}; }

/// What is tried. `work` lets the request fail by itself, once what is not to be tried is done.
struct Trial {
  const char* name;
  std::function<void(std::int64_t n)> work;
};

// A reader, with a valid file of tests/fuzz. `read` takes its bytes and a path at which they lie.
Trial reading(const char* name, const std::string& input,
              std::function<void(const std::string& bytes, const std::filesystem::path& path)> read) {
  const auto file = std::make_shared<fuzz::MemoryFile>();
  file->hold(seed(input));
  return {name, [file, read = std::move(read), bytes = seed(input)](std::int64_t n) {
            test::fail_request(n);
            read(bytes, file->path());
          }};
}

// A target of tests/fuzz that reads and does nothing else.
Trial target(const char* name, void (*parse)(std::string_view), const std::string& input) {
  return reading(name, input, [parse](const std::string& bytes, const auto&) { parse(bytes); });
}

Trial report_file(const char* name, void (*read)(const std::filesystem::path&, report::RecordedRun&),
                  const std::string& input) {
  return reading(name, input, [read](const std::string&, const std::filesystem::path& path) {
    report::RecordedRun run;
    read(path, run);
  });
}

// Forward, backward with the all-reduce of one rank, update.
void train(std::int64_t n) {
  dist::run_ranks({.ranks = 1}, [n](dist::ProcessGroup& group) {
    const auto model = test::toy_cnn();
    dist::Ddp ddp(model->named_parameters(), model->named_buffers(), group);
    optim::Sgd optimizer(ddp.parameters(), 0.01, {.momentum = 0.9});
    const test::ToyBatch batch = test::toy_batch({3, 8, 8}, 8, 0, 1, 5);
    test::fail_request(n);
    ddp.parameters().zero_grad();
    const Variable loss = test::toy_loss(*model, batch);
    backward(loss);
    optimizer.step();
    test::fail_request(0);
  });
}

// Whether the request failed; then `wrong` says what was not right about it, if anything.
bool attempt(const Trial& trial, std::int64_t n, std::string& wrong) {
  runtime(Device{}).trim();  // Or tensors would come from memory that is kept for them.
  try {
    trial.work(n);
  } catch (const std::bad_alloc&) {
  } catch (const Error&) {
  } catch (const std::exception& error) {
    wrong = str("ended with ", error.what());
  }
  const bool failed = test::request_failed();
  test::fail_request(0);
  return failed;
}

// Empty, or what went wrong at the first n that was not clean. Ends where all requests of the trial have failed once.
std::string first_wrong(const Trial& trial, std::int64_t every, std::int64_t& failures) {
  constexpr std::int64_t kLast = 2000;
  std::string wrong;
  for (int warm_up = 0; warm_up < 3; ++warm_up) attempt(trial, 0, wrong);
  for (std::int64_t n = 1; n <= kLast && wrong.empty(); n += every) {
    const Held before = held();
    if (!attempt(trial, n, wrong)) break;
    ++failures;
    // What a function keeps for ever it may also fetch only now: a leak is what comes again.
    if (const Held once = held(); once != before && wrong.empty()) {
      attempt(trial, n, wrong);
      if (held() != once)
        wrong = str("leaks ", held().objects - once.objects, " objects, ",
                    held().tensor_bytes - once.tensor_bytes, " bytes of tensors");
    }
    if (!wrong.empty()) wrong = str("request ", n, ": ", wrong);
  }
  attempt(trial, 0, wrong);
  return wrong;
}

void try_all(std::int64_t every) {
  const std::vector<dist::ParameterInfo> parameters{{"conv.weight", 4096, DType::f32, 4},
                                                    {"fc.weight", 256, DType::f32, 2},
                                                    {"fc.bias", 40, DType::bf16, 1}};
  const Trial trials[] = {
      target("safetensors", fuzz::safetensors, "safetensors/seed-two"),
      target("config", fuzz::config, "config/seed-types"),
      target("command line", fuzz::command_line, "command_line/seed-rules"),
      target("CIFAR", fuzz::cifar, "cifar/seed-two"),
      reading("plan", "plan/seed-parts",
              [&](const std::string& bytes, const auto&) { dist::plan_from_json(bytes, parameters); }),
      reading("profile", "profile/seed-modelled",
              [](const std::string& bytes, const auto&) { telemetry::profile_from_json(bytes, "it"); }),
      report_file("metrics", report::read_metrics, "metrics/seed-run"),
      report_file("buckets", report::read_buckets, "buckets/seed-two"),
      report_file("trace", report::read_trace, "trace/seed-packed"),
      {"step of training", train}};
  for (const Trial& trial : trials) {
    std::int64_t failures = 0;
    const std::string wrong = first_wrong(trial, every, failures);
    CAPTURE(trial.name, failures);
    CHECK(wrong == "");
    CHECK(failures > 0);
    if (every == 1) WARN(trial.name << ": " << failures << " failures");
  }
}

}  // namespace

TEST_CASE("a request for memory that fails is an error and no leak", "[integration][memory]") { try_all(41); }

TEST_CASE("each of the first 2000 requests for memory may fail", "[.][full][memory]") { try_all(1); }
