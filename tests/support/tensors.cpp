// SPDX-License-Identifier: MIT
// tests/support/tensors.cpp - making and comparing tensors in tests. Uses core only, so that it can judge kernels.
#include "tests/support/tensors.h"

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "core/rng.h"

namespace brigade::test {

Device test_device() {
  const char* text = std::getenv("BRIGADE_TEST_DEVICE");
  const std::string_view device = text != nullptr ? text : "cpu";
  BRIGADE_CHECK(device == "cpu" || device == "cuda", "BRIGADE_TEST_DEVICE: cpu or cuda; got ", device);
  return {device == "cpu" ? DeviceType::cpu : DeviceType::cuda};
}

Tensor random(const Shape& shape, std::uint64_t seed, DType dtype, MemoryFormat format) {
  Tensor t = Tensor::empty(shape, dtype, {}, format);
  const Strides dense = dense_strides(shape);
  dispatch(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* data = t.data<T>();
    for (std::int64_t i = 0; i < t.numel(); ++i) {
      std::int64_t at = 0, rest = i;
      for (int d = 0; d < shape.size(); ++d) {
        at += rest / dense[d] * t.stride(d);
        rest %= dense[d];
      }
      const auto index = static_cast<std::uint64_t>(i);
      const int small = static_cast<int>(philox(seed, 1, index)[0] % 9) - 4;
      if constexpr (std::is_same_v<T, bool>)
        data[at] = small > 0;
      else if constexpr (std::is_unsigned_v<T>)
        data[at] = static_cast<T>(std::abs(small));
      else if constexpr (std::is_integral_v<T>)
        data[at] = static_cast<T>(small);
      else
        data[at] = static_cast<T>(normal_at(seed, 0, index));
    }
  });
  return t.to(test_device());
}

std::vector<double> values(const Tensor& t) {
  return dispatch(t.dtype(), [&](auto tag) {
    std::vector<double> out;
    for (auto value : t.to_vector<typename decltype(tag)::type>()) out.push_back(static_cast<double>(value));
    return out;
  });
}

std::string differs(const Tensor& a, const Tensor& b, double relative, double absolute) {
  if (!a.defined() || !b.defined()) return "a tensor is undefined";
  if (a.shape() != b.shape()) return str("shapes differ: ", a.shape(), " and ", b.shape());
  const auto x = values(a), y = values(b);
  double worst = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) continue;
    double excess = std::abs(x[i] - y[i]) - absolute - relative * std::abs(y[i]);
    if (std::isnan(excess)) excess = INFINITY;
    if (excess > worst) {
      worst = excess;
      at = i;
    }
  }
  if (worst == 0) return "";
  return str("element ", at, " of ", a.shape(), ": ", x[at], " and ", y[at], ", beyond ", relative,
             " relative + ", absolute, " absolute");
}

std::string differs_bitwise(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype()) return str("dtypes differ: ", a.dtype(), " and ", b.dtype());
  if (a.shape() != b.shape()) return str("shapes differ: ", a.shape(), " and ", b.shape());
  return dispatch(a.dtype(), [&](auto tag) -> std::string {
    using T = typename decltype(tag)::type;
    const std::vector<T> x = a.to_vector<T>(), y = b.to_vector<T>();
    for (std::size_t i = 0; i < x.size(); ++i) {
      const T p = x[i], q = y[i];
      if (std::memcmp(&p, &q, sizeof(T)) != 0)
        return str("element ", i, ": ", static_cast<double>(p), " and ", static_cast<double>(q));
    }
    return "";
  });
}

}  // namespace brigade::test
