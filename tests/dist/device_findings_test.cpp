// SPDX-License-Identifier: MIT
// tests/dist/device_findings_test.cpp - verdicts and 16-bit means as a device makes them, with the kernels of the CPU:
// the code is the same, and the loops that the CPU uses instead are at hand to compare with.
#include "dist/device_findings.h"

#include <limits>

#include "dist/comm_hook.h"
#include "dist/hooks/hooks.h"
#include "tests/support/ranks.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::dist;
using namespace brigade::test;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Tensor numbers(const std::vector<float>& values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}

// Of a step with three buckets in which each rank looks at what `look` shows it.
DeviceFindings::Report report_of(ProcessGroup& group, const std::function<void(DeviceFindings&)>& look) {
  DeviceFindings findings(Device{}, group.rank(), group.size(), 3);
  look(findings);
  findings.exchange(group);
  findings.wait();
  DeviceFindings::Report report = findings.read();
  require((findings.skip().item() != 0) == report.any(), "the flag for optimizers agrees with the report");
  return report;
}

}  // namespace

TEST_CASE("what one rank finds on its device all ranks report alike", "[dist][device-findings][ranks]") {
  for_each_world([](ProcessGroup& group) {
    const int last = group.size() - 1;
    const auto report = report_of(group, [&](DeviceFindings& findings) {
      const bool bad = group.rank() == last;
      findings.look_at_loss(numbers({bad ? kInfinity : 1.0f}));
      for (int bucket = 0; bucket < 3; ++bucket)
        findings.look_at_own(bucket, numbers({1, bad && bucket > 0 ? kInfinity : 2.0f}));
      findings.look_at_mean(numbers({1, kInfinity}));
    });
    for (int rank = 0; rank < group.size(); ++rank) {
      const Finding& found = report.findings[static_cast<std::size_t>(rank)];
      require(report.loss_finite[static_cast<std::size_t>(rank)] == (rank != last), "loss");
      require(found.kind == (rank == last ? Finding::Kind::not_finite : Finding::Kind::none), "kind");
      if (rank == last) require(found.bucket == 1, "the first bucket");
    }
  });
}

TEST_CASE("a step in which all is finite counts on all ranks", "[dist][device-findings][ranks]") {
  for_each_world([](ProcessGroup& group) {
    const auto report = report_of(group, [](DeviceFindings& findings) {
      findings.look_at_loss(numbers({3}));
      findings.look_at_own(0, numbers({1, 2}));
      findings.look_at_sent(0, numbers({1, 2}));
      findings.look_at_mean(numbers({}));
    });
    require(!report.any(), "nothing was found");
  });
}

TEST_CASE("a loss that is not finite is enough for a step not to count", "[dist][device-findings][ranks]") {
  for_each_world([](ProcessGroup& group) {
    const int last = group.size() - 1;
    const auto report = report_of(group, [&](DeviceFindings& findings) {
      findings.look_at_loss(numbers({group.rank() == last ? kInfinity : 1.0f}));
      findings.look_at_own(0, numbers({1}));
    });
    require(report.any() && !report.loss_finite[static_cast<std::size_t>(last)], "the loss");
    for (const Finding& found : report.findings) require(found.kind == Finding::Kind::none, "gradients");
  });
}

TEST_CASE("an overflow of what travels, and of a mean alone, are told from gradients that are not finite",
          "[dist][device-findings][ranks]") {
  for_each_world([](ProcessGroup& group) {
    auto report = report_of(group, [&](DeviceFindings& findings) {
      findings.look_at_own(2, numbers({70000}));
      findings.look_at_sent(2, numbers({group.rank() == 0 ? kInfinity : 1.0f}));
      findings.look_at_mean(numbers({kInfinity}));
    });
    require(report.findings[0].kind == Finding::Kind::overflow && report.findings[0].bucket == 2, "overflow");
    report = report_of(group, [](DeviceFindings& findings) { findings.look_at_mean(numbers({kInfinity})); });
    require(report.findings[0].kind == Finding::Kind::mean_not_finite, "mean");
  });
}

TEST_CASE("a finding gets the first parameter whose mean is not finite, in its bucket",
          "[dist][device-findings]") {
  std::vector<nn::NamedParameter> parameters;
  for (const char* name : {"a", "b", "c", "d"})
    parameters.push_back({name, Variable::parameter(Tensor::zeros({5}))});
  optim::FlatParameters flat(parameters, {0, 1, 2, 3});
  BucketPlan plan;
  plan.buckets = {{.range = {0, 2}}, {.range = {2, 4}}};
  flat.gradients({1, 2}).data<float>()[3] = kInfinity;
  flat.gradients({3, 4}).data<float>()[0] = kInfinity;
  DeviceFindings::Report report;
  report.findings = {{Finding::Kind::none, -1, -1},
                     {Finding::Kind::not_finite, -1, 1},
                     {Finding::Kind::mean_not_finite, -1, -1}};
  report.locate(plan, flat);
  REQUIRE(report.findings[0].position == -1);
  REQUIRE(report.findings[1].position == 3);
  REQUIRE(report.findings[2].position == 1);
  REQUIRE(report.findings[2].bucket == 0);
}

TEST_CASE("16-bit means by a device's kernels have the bits of the CPU's loops",
          "[dist][device-findings][ranks]") {
  for_each_world([](ProcessGroup& group) {
    for (const DType wire : {DType::bf16, DType::f16})
      for (const std::int64_t n : {1, 63, 64, 1000}) {
        const auto seed = static_cast<std::uint64_t>(7 * group.rank() + n);
        std::vector<nn::NamedParameter> parameters{{"p", Variable::parameter(Tensor::zeros({n}))}};
        optim::FlatParameters flat(parameters);
        const auto hook = make_comm_hook(wire == DType::bf16 ? "bf16" : "f16", flat);
        const Tensor values = random({n}, seed);
        Tensor a = Tensor::from(values.to_vector<float>(), {n}),
               b = Tensor::from(values.to_vector<float>(), {n});
        int looked = 0;
        group
            .run({.operation = "means",
                  .run =
                      [&](Transport& transport) {
                        HookBucket loops{flat, {0, 1}, 0, n, a, 0};
                        hook->mean(loops, transport);
                        HookBucket kernels{
                            flat, {0, 1}, 0, n, b, 0, [&](const Tensor& t) { looked += t.dtype() == wire; }};
                        mean_by_kernels(kernels, wire, 1.0 / transport.size(), transport);
                      }})
            .wait();
        require_same(a, b, str(wire, " x ", n));
        require(looked == 1, "what travels is shown once");
      }
  });
}
