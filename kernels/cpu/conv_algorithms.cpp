// SPDX-License-Identifier: MIT
// kernels/cpu/conv_algorithms.cpp - the list of algorithms, what each can do, and the choice.
#include "kernels/cpu/conv_algorithms.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/amx/amx.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/structured.h"

namespace brigade::cpu {

namespace {

using onednn::ConvMethod;

template <ConvMethod method>
constexpr ConvAlgorithm onednn_algorithm(std::string_view name, bool (*fits)(const ConvProblem&)) {
  return {.name = name,
          .fits = fits,
          .forward = onednn::conv2d<method>,
          .forward_with_moments = nullptr,
          .grad_input = onednn::conv2d_grad_input<method>,
          .add_grad_input = nullptr,
          .grad_weight = onednn::conv2d_grad_weight<method>};
}

bool fits_onednn(const ConvProblem& p) {
  if (p.dtype == DType::f64 || (p.dtype == DType::bf16 && !onednn::supports_bf16())) return false;
  return p.pass != ConvPass::grad_weight ||
         !onednn::backward_weights_is_unsafe(p.dtype, p.in_channels, p.in_size, p.window);
}

// Channels that leave part of a block empty come back wrong in some weights' gradients.
bool fits_onednn_blocked(const ConvProblem& p) {
  return fits_onednn(p) &&
         (p.pass != ConvPass::grad_weight || (p.in_channels % 16 == 0 && p.out_channels % 16 == 0));
}

bool is_3x3(const ConvProblem& p) {
  const Window wanted{.kernel = {3, 3}, .padding = {1, 1}};
  const auto same = [](const std::int64_t(&a)[2], const std::int64_t(&b)[2]) {
    return a[0] == b[0] && a[1] == b[1];
  };
  return same(p.window.kernel, wanted.kernel) && same(p.window.stride, wanted.stride) &&
         same(p.window.padding, wanted.padding) && same(p.window.dilation, wanted.dilation) &&
         p.window.groups == 1;
}

bool fits_winograd(const ConvProblem& p) {
  const auto blocks = [](std::int64_t channels) { return channels >= 32 && channels % 16 == 0; };
  return p.dtype == DType::f32 && is_3x3(p) && blocks(p.in_channels) && blocks(p.out_channels);
}

bool fits_amx(const ConvProblem& p) {
  return amx::available() && p.dtype != DType::f64 && p.channels_last && p.window.groups == 1;
}

bool fits_amx_pixels(const ConvProblem& p) {
  if (!fits_amx(p)) return false;
  if (p.pass == ConvPass::forward) return amx::pixels::fits(p.out_size[1]);
  return p.pass == ConvPass::grad_input && amx::pixels::fits(p.in_size[1]) && !p.is_strided();
}

constexpr std::array kAlgorithms{
    onednn_algorithm<ConvMethod::direct>("onednn", fits_onednn),
    // oneDNN's own layout of activations, with copies before and after.
    onednn_algorithm<ConvMethod::blocked>("onednn_blocked", fits_onednn_blocked),
    onednn_algorithm<ConvMethod::winograd>("onednn_winograd", fits_winograd),
    ConvAlgorithm{.name = "im2col",
                  .fits = [](const ConvProblem&) { return true; },
                  .forward = im2col::conv2d,
                  .forward_with_moments = nullptr,
                  .grad_input = im2col::conv2d_grad_input,
                  .add_grad_input = nullptr,
                  .grad_weight = im2col::conv2d_grad_weight},
    ConvAlgorithm{.name = "amx_images",
                  .fits = fits_amx,
                  .forward = amx::images::conv2d,
                  .forward_with_moments = amx::images::conv2d_with_moments,
                  .grad_input = amx::images::conv2d_grad_input,
                  .add_grad_input = amx::images::add_conv2d_grad_input,
                  .grad_weight = amx::images::conv2d_grad_weight},
    ConvAlgorithm{.name = "amx_pixels",
                  .fits = fits_amx_pixels,
                  .forward = amx::pixels::conv2d,
                  .forward_with_moments = amx::pixels::conv2d_with_moments,
                  .grad_input = amx::pixels::conv2d_grad_input,
                  .add_grad_input = amx::pixels::add_conv2d_grad_input,
                  .grad_weight = nullptr},
};

const ConvAlgorithm& find(std::string_view name) {
  const auto found = std::find_if(kAlgorithms.begin(), kAlgorithms.end(),
                                  [&](const ConvAlgorithm& a) { return a.name == name; });
  BRIGADE_CHECK(found != kAlgorithms.end(), "convolution: no algorithm is called \"", name, "\"");
  return *found;
}

// Of the entries for this shape the one whose number of images is nearest, as a ratio; or null.
const ConvChoice* measured(const ConvProblem& p) {
  if (!amx::available() || !p.channels_last || p.window.groups != 1 || p.in_size[0] != p.in_size[1])
    return nullptr;
  const ConvChoice* best = nullptr;
  const auto distance = [&](const ConvChoice& c) {
    return std::abs(std::log(static_cast<double>(c.images) / static_cast<double>(p.images)));
  };
  for (const ConvChoice& c : measured_conv_choices()) {
    if (c.pass != p.pass || c.dtype != p.dtype || c.in_channels != p.in_channels ||
        c.out_channels != p.out_channels || c.in_size != p.in_size[0])
      continue;
    bool same = true;
    for (int d = 0; d < 2; ++d)
      same = same && p.window.kernel[d] == c.kernel && p.window.stride[d] == c.stride &&
             p.window.padding[d] == c.kernel / 2 && p.window.dilation[d] == 1;
    if (same && (best == nullptr || distance(c) < distance(*best))) best = &c;
  }
  return best;
}

// What holds for most shapes measured. Tiles of images want at least 16 of them and, to pay for packing, channels.
std::string_view by_rule(const ConvProblem& p) {
  const bool wide = p.in_channels >= 32 && p.out_channels >= 32;
  const bool tiles = fits_amx(p) && p.images >= 16 && wide;
  if (p.dtype == DType::bf16 && tiles) {
    if (p.pass == ConvPass::grad_weight || p.out_pixels() <= 64) return "amx_images";
    if (p.pass == ConvPass::grad_input && p.is_strided()) return "amx_images";
  }
  if (p.dtype == DType::bf16 && onednn::supports_amx() && wide && p.window.groups == 1 && p.channels_last) {
    if (p.out_pixels() <= 16 || (p.pass == ConvPass::grad_weight && (p.out_pixels() <= 64 || p.is_strided())))
      return "im2col";
  }
  if (p.dtype == DType::f32 && p.window.kernel[0] > 1) {
    if (wide && fits_amx_pixels(p)) return "amx_pixels";
    if (tiles && (p.out_pixels() <= 16 || p.is_strided())) return "amx_images";
  }
  if (fits_winograd(p)) return "onednn_winograd";
  return fits_onednn(p) ? "onednn" : "im2col";
}

// The table and the rules go by times without adding and without moments. Where tiles are a few percent slower than
// `fastest`, which cannot do that, they are faster than it and another pass over memory.
const ConvAlgorithm& one_that_does_both(const ConvProblem& p, const ConvAlgorithm& fastest) {
  const bool wide = p.in_channels >= 32 && p.out_channels >= 32 && p.window.kernel[0] > 1;
  if (!wide || (p.adds && p.is_strided()) || !fits_amx(p)) return fastest;
  if (fits_amx_pixels(p)) return find("amx_pixels");
  return p.images >= 16 && p.out_pixels() <= 64 ? find("amx_images") : fastest;
}

thread_local const ConvAlgorithm* forced = nullptr;

}  // namespace

std::string_view name(ConvPass pass) {
  switch (pass) {
    case ConvPass::forward:
      return "forward";
    case ConvPass::grad_input:
      return "grad_input";
    case ConvPass::grad_weight:
      return "grad_weight";
  }
  return "?";
}

ConvProblem::ConvProblem(ConvPass pass_, const Tensor& x, const Tensor& y, const Window& window_)
    : pass(pass_),
      dtype(x.dtype()),
      images(x.size(0)),
      in_channels(x.size(1)),
      out_channels(y.size(1)),
      in_size{x.size(2), x.size(3)},
      out_size{y.size(2), y.size(3)},
      window(window_),
      channels_last(x.is_contiguous(MemoryFormat::channels_last) &&
                    y.is_contiguous(MemoryFormat::channels_last)) {}

std::span<const ConvAlgorithm> conv_algorithms() { return kAlgorithms; }

const ConvAlgorithm& choose_conv(const ConvProblem& problem) {
  if (forced != nullptr && forced->fits(problem)) return *forced;
  const ConvChoice* choice = measured(problem);
  const ConvAlgorithm& fastest = find(choice != nullptr ? choice->algorithm : by_rule(problem));
  const bool cannot = (problem.adds && fastest.add_grad_input == nullptr) ||
                      (problem.takes_moments && fastest.forward_with_moments == nullptr);
  return cannot ? one_that_does_both(problem, fastest) : fastest;
}

ConvAlgorithmScope::ConvAlgorithmScope(std::string_view name) : outer_(std::exchange(forced, &find(name))) {}
ConvAlgorithmScope::~ConvAlgorithmScope() { forced = outer_; }

}  // namespace brigade::cpu
