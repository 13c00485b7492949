// SPDX-License-Identifier: MIT
// apps/bench/tune.cpp - see tune.h.
#include "apps/bench/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <functional>

#include "apps/bench/conv_bound.h"
#include "apps/bench/op_cases.h"
#include "apps/bench/timing.h"
#include "core/check.h"
#include "kernels/cpu/conv_algorithms.h"

namespace brigade::apps {
namespace {

using cpu::ConvAlgorithm;
using cpu::ConvProblem;
using Entry = SpanList::Entry;

// The spans of both stems' convolutions, each once.
std::vector<Entry> convolutions(DType precision, std::int64_t images) {
  std::vector<Entry> out;
  for (const char* stem : {"cifar", "imagenet"}) {
    const Recorded step = record_step({.stem = stem, .precision = precision, .batch_size = images});
    for (const auto& [span, count] : count_equal(step.spans)) {
      const auto same = [&, &s = span](const Entry& e) { return e.name == s.name && e.details == s.details; };
      if (span.name.starts_with("conv2d") && std::none_of(out.begin(), out.end(), same)) out.push_back(span);
    }
  }
  return out;
}

struct Timing {
  std::string_view algorithm;
  double ms;
};

// Fastest first, but the first of the list, which are the simplest, before those that gain less than 3 %. Rounds take
// turns, so that a slow moment of the machine meets all alike.
std::vector<Timing> measure(const Entry& span, DType precision, const ConvProblem& problem, int rounds) {
  const std::vector<OpCase> cases = make_cases(span, precision);
  std::vector<Timing> timings;
  for (const ConvAlgorithm& a : cpu::conv_algorithms())
    if (a.fits(problem)) timings.push_back({a.name, 1e30});
  for (int round = 0; round < rounds; ++round)
    for (Timing& t : timings) {
      const cpu::ConvAlgorithmScope scope(t.algorithm);
      const std::vector<double> ms = repeat_ms(
          cases.at(0).call, {.warmup = round == 0 ? 2 : 1, .min_calls = 2, .min_ms = 0, .max_calls = 2});
      t.ms = std::min(t.ms, *std::min_element(ms.begin(), ms.end()));
    }
  const auto faster = [](const Timing& a, const Timing& b) { return a.ms < b.ms; };
  const double good = 1.03 * std::min_element(timings.begin(), timings.end(), faster)->ms;
  std::rotate(timings.begin(),
              std::find_if(timings.begin(), timings.end(), [&](const Timing& t) { return t.ms <= good; }),
              timings.end());
  std::stable_sort(timings.begin() + 1, timings.end(), faster);
  return timings;
}

}  // namespace

void tune_convolutions(const TuneOptions& options, const std::function<void(const std::string&)>& line) {
  std::ofstream file(options.path);
  BRIGADE_CHECK(file, "--tune: cannot write ", options.path);
  file << "// SPDX-License-Identifier: MIT\n"
          "// kernels/cpu/conv_table.cpp - the fastest algorithm by shape, written by `bench_op --tune`.\n"
          "// Milliseconds of the chosen one and of the next. Long because it is data.\n"
          "#include \"kernels/cpu/conv_algorithms.h\"\n\nnamespace brigade::cpu {\n\nnamespace {\n\n"
          "// Pass, dtype, input and output channels, side of the input, of the kernel, stride, images, "
          "algorithm.\n"
          "// clang-format off\n"
          "constexpr ConvChoice kChoices[] = {\n";
  for (const DType precision : {DType::f32, DType::bf16})
    for (const std::int64_t images : options.images)
      for (const Entry& span : convolutions(precision, images)) {
        const ConvProblem p = conv_problem(span, precision);
        const std::vector<Timing> timings = measure(span, precision, p, options.rounds);
        const std::string note = fmt::format(
            "{:.3f}{}", timings[0].ms,
            timings.size() > 1 ? fmt::format(", {} {:.3f}", timings[1].algorithm, timings[1].ms) : "");
        const std::string row =
            fmt::format("{{ConvPass::{}, DType::{}, {}, {}, {}, {}, {}, {}, \"{}\"}},", name(p.pass),
                        name(precision), p.in_channels, p.out_channels, p.in_size[0], p.window.kernel[0],
                        p.window.stride[0], p.images, timings[0].algorithm);
        file << "    " << row << "  // " << note << "\n";
        line(row + "  " + note);
      }
  file << "};\n// clang-format on\n\n}  // namespace\n\n"
          "std::span<const ConvChoice> measured_conv_choices() { return kChoices; }\n\n"
          "}  // namespace brigade::cpu\n";
  file.close();
  BRIGADE_CHECK(file, "--tune: cannot write ", options.path);
}

}  // namespace brigade::apps
