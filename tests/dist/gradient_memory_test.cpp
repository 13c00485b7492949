// SPDX-License-Identifier: MIT
// tests/dist/gradient_memory_test.cpp - gradient memory is bucket memory: what both take is measured by addresses.
#include "dist/gradient_memory.h"

#include "dist/ddp.h"
#include "models/catalog.h"
#include "tests/support/ranks.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::dist;
using test::require;

TEST_CASE("memory of gradients and buckets that is the same counts once, copies count as such",
          "[dist][memory]") {
  const Tensor flat = Tensor::empty({64}), copy = Tensor::empty({48});
  const std::vector<Tensor> gradients{flat.slice(0, 32, 40), flat.slice(0, 0, 30)};
  const auto measure = [&](const std::vector<Tensor>& buckets) {
    return gradient_memory(gradients, buckets);
  };

  const GradientMemory views = measure({flat.slice(0, 0, 32), flat.slice(0, 32, 64)});
  CHECK(views.gradients == 4 * 38);
  CHECK(views.buckets == 4 * 64);
  CHECK(views.together == 4 * 64);
  CHECK(measure({copy}).together == 4 * (38 + 48));
  CHECK(measure({flat.slice(0, 30, 34)}).together == 4 * 40);
  CHECK(measure({}).ratio() == 1);
  CHECK(measure({copy, copy, copy.slice(0, 5, 20)}).buckets == 4 * 48);
}

TEST_CASE("gradients of ResNet-18 and their buckets together take no more than 1.05 of the gradients",
          "[dist][memory][ranks]") {
  test::for_each_world(
      [](ProcessGroup& group) {
        const auto model = models::make_model("resnet18");
        const auto check = [&](const DdpOptions& options, const std::string& what) {
          const Ddp ddp(model->named_parameters(), model->named_buffers(), group, options);
          const GradientMemory memory = ddp.gradient_memory();
          const std::string found = str(what, ": ", memory.text());
          require(memory.gradients == std::int64_t{4} * 11'173'962, found);
          require(memory.buckets >= memory.gradients && memory.ratio() >= 1, found);
          require(memory.ratio() <= 1.05, found);
        };
        check({}, "the default plan");
        for (const char* strategy : {"flat", "per_parameter"}) check({.strategy = strategy}, strategy);
      },
      {.sizes = {1, 2}});
}
