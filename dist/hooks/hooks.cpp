// SPDX-License-Identifier: MIT
// dist/hooks/hooks.cpp - what several hooks need.
#include "dist/hooks/hooks.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace brigade::dist {

DivideFactors divide_factors(Divide divide, int size) {
  const double n = size;
  switch (divide) {
    case Divide::before:
      return {1 / n, 1};
    case Divide::split:
      return {1 / std::sqrt(n), 1 / std::sqrt(n)};
    case Divide::automatic:
    case Divide::after:
      return {1, 1 / n};
  }
  fail("divide: not a place to divide");
}

void check_f32(std::string_view hook, const optim::FlatParameters& parameters) {
  for (int i = 0; i < parameters.count(); ++i)
    BRIGADE_CHECK(parameters.at(i).variable.dtype() == DType::f32, "comm hook ", hook,
                  ": needs f32 parameters; got ", parameters.at(i).variable.dtype(), " \"",
                  parameters.at(i).name, "\"");
}

Tensor scratch(Tensor& memory, std::int64_t numel, DType dtype) {
  if (!memory.defined() || memory.numel() < numel) memory = Tensor::empty({numel}, dtype);
  return memory.slice(0, 0, numel);
}

void clear_gaps(const HookBucket& bucket, const Tensor& t) {
  float* const x = t.data<float>();
  std::int64_t done = 0;
  bucket.for_each_parameter([&](int, std::int64_t first, std::int64_t last) {
    std::fill(x + done, x + first, 0.0f);
    done = last;
  });
  std::fill(x + done, x + t.numel(), 0.0f);
}

void fill_nan(HookBucket& bucket) {
  std::fill_n(bucket.gradients.data<float>(), bucket.gradients.numel(),
              std::numeric_limits<float>::quiet_NaN());
  clear_gaps(bucket, bucket.gradients);
}

void append_state(NamedTensors& out, const std::string& kind, const optim::FlatParameters& parameters,
                  const optim::FlatBuffer& buffer) {
  for (const int i : parameters.in_registration_order())
    out.emplace_back(str(kind, ".", parameters.at(i).name), buffer.at(parameters, i));
}

}  // namespace brigade::dist
