// SPDX-License-Identifier: MIT
// kernels/cuda/conv_problem.cpp - see conv_problem.h.
#include "kernels/cuda/conv_problem.h"

#include <algorithm>

#include "kernels/cuda/settings.h"

namespace brigade::cuda {

namespace {

std::array<std::int64_t, 4> sizes(const Shape& shape) { return {shape[0], shape[1], shape[2], shape[3]}; }
std::array<std::int64_t, 2> pair(const std::int64_t (&values)[2]) { return {values[0], values[1]}; }
std::string text(const std::array<std::int64_t, 2>& values) { return str(values[0], " x ", values[1]); }
Shape shape(const std::array<std::int64_t, 4>& sizes) { return {sizes[0], sizes[1], sizes[2], sizes[3]}; }

}  // namespace

ConvProblem conv_problem(ConvPass pass, DType dtype, MemoryFormat format, const Shape& x, const Shape& w,
                         const Shape& y, const Window& window) {
  return {.pass = pass,
          .dtype = dtype,
          .format = format,
          .x = sizes(x),
          .w = sizes(w),
          .y = sizes(y),
          .stride = pair(window.stride),
          .padding = pair(window.padding),
          .dilation = pair(window.dilation),
          .groups = window.groups,
          .tf32 = dtype == DType::f32 && allow_tf32(),
          .timed = time_convolutions()};
}

const char* name(ConvPass pass) {
  if (pass == ConvPass::forward) return "conv2d";
  return pass == ConvPass::grad_input ? "conv2d_grad_input" : "conv2d_grad_weight";
}

void append_text(std::string& out, const ConvProblem& p) {
  out += str(p.dtype, p.format == MemoryFormat::channels_last ? " channels_last" : " contiguous", " x ",
             shape(p.x), ", weight ", shape(p.w), ", stride ", text(p.stride), ", padding ", text(p.padding),
             ", dilation ", text(p.dilation), ", ", p.groups, " groups");
}

}  // namespace brigade::cuda
