// SPDX-License-Identifier: MIT
// tests/dist/profiler_test.cpp - what a profiler sees of a step: NVTX ranges, written down by the tool of
// tests/fake_gpu/nvtx.cpp. Hidden, because NVTX looks for a tool once a process: CTest names it in the environment.
#include "core/profiler.h"

#include <dlfcn.h>

#include <cstdlib>
#include <sstream>

#include "autograd/engine.h"
#include "autograd/ops/loss.h"
#include "core/rng.h"
#include "dist/ddp.h"
#include "models/mlp.h"
#include "nn/optim/sgd.h"
#include "tests/support/ranks.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::dist;
using namespace brigade::test;

namespace {

// A range a line, indented by its depth: of this thread, or of all others.
std::vector<std::string> ranges(bool of_others) {
  void* const tool = dlopen(std::getenv("NVTX_INJECTION64_PATH"), RTLD_NOW | RTLD_NOLOAD);
  require(tool != nullptr, "NVTX has loaded the tool");
  const auto tell = reinterpret_cast<const char* (*)(int)>(dlsym(tool, "fake_nvtx_ranges"));
  std::istringstream lines(tell(of_others ? 1 : 0));
  dlclose(tool);
  std::vector<std::string> out;
  for (std::string line; std::getline(lines, line);) out.push_back(line);
  return out;
}

bool is_bucket(const std::string& line) { return line.find("bucket ") != std::string::npos; }

}  // namespace

TEST_CASE("steps, layers and buckets are NVTX ranges with the ledger's names, nested as there", "[.nvtx]") {
  for_each_world(
      [](ProcessGroup& group) {
        require(profiler() != nullptr, "NVTX has found a tool");
        const auto before = static_cast<std::ptrdiff_t>(ranges(false).size());
        default_generator() = {.seed = 1};
        models::Mlp model({.inputs = 12, .hidden = {8}, .classes = 3});
        Ddp ddp(model.named_parameters(), model.named_buffers(), group);
        ddp.ledger().timeline().set_layers(model.number_layers());
        optim::Sgd optimizer(ddp.parameters(), 0.1);
        const Variable images(random({4, 12}, static_cast<std::uint64_t>(group.rank() + 1)));
        const Tensor labels = Tensor::from(std::vector<std::int64_t>{0, 1, 2, 0}, {4});
        std::vector<std::string> expected;
        for (int step = 1; step <= 2; ++step) {
          {
            const StepScope recorded(ddp.ledger());
            ddp.parameters().zero_grad();
            const Variable out = model(images);
            backward(cross_entropy(out, labels));
            optimizer.step();
          }
          expected.push_back(str("step ", step));
          const Timeline& timeline = ddp.ledger().timeline();
          for (const TimedSpan& span : ddp.ledger().last().spans)
            expected.push_back(std::string(static_cast<std::size_t>(span.depth + 1), ' ') +
                               timeline.name(span));
        }
        std::vector<std::string> own = ranges(false), all = ranges(true);
        all.insert(all.end(), own.begin(), own.end());
        own.erase(own.begin(), own.begin() + before);
        std::erase_if(own, is_bucket);  // A thread that waits for its buckets may carry one itself.
        require(own == expected, "the thread's ranges are its spans");
        for (int bucket = 0; bucket < static_cast<int>(ddp.plan().buckets.size()); ++bucket) {
          int found = 0;
          for (const std::string& line : all) found += line.ends_with(ddp.bucket_label(bucket)) ? 1 : 0;
          require(found >= 2, str(ddp.bucket_label(bucket), " is a range, once a step"));
        }
        // Others of this process must not look while this rank's thread still has its say.
        group.barrier().wait();
      },
      {.sizes = {1, 2}});
}
