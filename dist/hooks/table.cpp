// SPDX-License-Identifier: MIT
// dist/hooks/table.cpp - comm hooks by name. Adding one adds a line here.
#include <array>
#include <charconv>
#include <cmath>

#include "core/choices.h"
#include "dist/hooks/hooks.h"

namespace brigade::dist {
namespace {

void set_fraction(HookOptions& options, double number) { options.fraction = number; }

void set_rank(HookOptions& options, double number) {
  BRIGADE_CHECK(number == std::floor(number) && std::abs(number) <= 1e6,
                "comm hook powersgd: the rank must be a whole number; got ", number);
  options.rank = static_cast<int>(number);
}

constexpr std::array kHooks{
    HookEntry{"none", "as they are", make_none, true, nullptr, true, true},
    HookEntry{"bf16", "rounded to bf16, summed in f32", make_bf16, false, nullptr, true, true},
    HookEntry{"f16", "rounded to f16, summed in f32; reports what overflows", make_f16, false, nullptr, true,
              true},
    HookEntry{"int8", "rounded to 255 steps up to the bucket's largest magnitude", make_int8},
    HookEntry{"sign", "one bit an element: majority vote; keeps errors", make_sign},
    HookEntry{"topk", "the largest ones, topk:FRACTION of all; keeps errors", make_topk, false, set_fraction},
    HookEntry{"powersgd", "matrices as products of rank powersgd:RANK; keeps errors", make_powersgd, false,
              set_rank},
    HookEntry{"sign_dropout", "per element only one sign, drawn by its share: ranks are tasks",
              make_sign_dropout},
};

}  // namespace

std::span<const HookEntry> comm_hooks() { return kHooks; }

const HookEntry& comm_hook(std::string_view name) {
  return choose("comm hook", name.substr(0, name.find(':')), kHooks);
}

std::unique_ptr<CommHook> make_comm_hook(std::string_view name, const optim::FlatParameters& parameters,
                                         HookOptions options) {
  const std::size_t colon = name.find(':');
  const HookEntry& entry = comm_hook(name);
  const Device device = parameters.count() > 0 ? parameters.at(0).variable.value().device() : Device{};
  std::string choices;
  for (const HookEntry& other : kHooks)
    if (other.on_device) choices += str(choices.empty() ? "" : ", ", other.name);
  BRIGADE_CHECK(device == Device{} || entry.on_device, "comm hook ", entry.name,
                ": works on the CPU only; got ", "parameters on ", device, "; choose from ", choices);
  if (colon != std::string_view::npos) {
    BRIGADE_CHECK(entry.set_number != nullptr, "comm hook ", entry.name, ": takes no number; got \"", name,
                  "\"");
    const std::string_view text = name.substr(colon + 1);
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    BRIGADE_CHECK(error == std::errc() && end == text.data() + text.size(), "comm hook ", entry.name, ": \"",
                  text, "\" is not a number; got \"", name, "\"");
    entry.set_number(options, number);
  }
  return entry.make(parameters, options);
}

}  // namespace brigade::dist
