// SPDX-License-Identifier: MIT
// tests/dist/hooked.h - one bucketful of gradients and a comm hook on each rank, and exact means to compare with.
#pragma once

#include <cmath>
#include <memory>
#include <numeric>
#include <string_view>
#include <vector>

#include "dist/comm_hook.h"
#include "dist/process_group.h"
#include "kernels/ops.h"
#include "tests/support/tensors.h"

namespace brigade::test {

inline std::vector<nn::NamedParameter> named(const std::vector<Shape>& shapes) {
  std::vector<nn::NamedParameter> out;
  for (const Shape& shape : shapes)
    out.push_back({str("p", out.size()), Variable::parameter(Tensor::zeros(shape))});
  return out;
}

// Parameters and a hook on one rank.
class Hooked {
 public:
  Hooked(dist::ProcessGroup& group, std::string_view name, const std::vector<Shape>& shapes,
         dist::HookOptions options = {})
      : parameters(named(shapes)), group_(group), hook_(dist::make_comm_hook(name, parameters, options)) {}

  Tensor gradient(int position) const { return parameters.at(position).variable.grad_memory(); }
  // Normal numbers; as every rank can compute those of the others.
  static Tensor random(const Shape& shape, int rank, std::uint64_t seed) {
    return test::random(shape, 1000 * seed + static_cast<std::uint64_t>(rank));
  }
  void fill(std::uint64_t seed) {
    for (int i = 0; i < parameters.count(); ++i)
      set(i, random(gradient(i).shape(), group_.rank(), seed + 31 * static_cast<std::uint64_t>(i)));
  }
  void fill_zero() {
    for (int i = 0; i < parameters.count(); ++i) set(i, Tensor::zeros(gradient(i).shape()));
  }
  void set(int position, const Tensor& values) {
    Tensor to = gradient(position);
    ops::copy_(to, values);
  }

  dist::HookReport mean(optim::Range range, std::int64_t begin, std::int64_t end, std::int64_t step = 0) {
    Tensor gradients = parameters.gradients(range).slice(0, begin, end);
    dist::HookReport report;
    group_
        .run({.operation = "hook",
              .tensor = gradients,
              .run =
                  [&](dist::Transport& transport) {
                    dist::HookBucket bucket{parameters, range, begin, end, gradients, step};
                    report = hook_->mean(bucket, transport);
                  }})
        .wait();
    return report;
  }
  dist::HookReport mean(optim::Range range, std::int64_t step = 0) {
    return mean(range, 0, parameters.bytes(range) / 4, step);
  }
  dist::HookReport mean_of_all(std::int64_t step = 0) { return mean(parameters.all(), step); }
  void mean_of_each(std::int64_t step = 0) {
    for (int i = 0; i < parameters.count(); ++i) mean({i, i + 1}, step);
  }
  Tensor flat() const { return parameters.gradients(parameters.all()); }

  optim::FlatParameters parameters;

 private:
  dist::ProcessGroup& group_;
  std::unique_ptr<dist::CommHook> hook_;
};

inline double norm(const std::vector<double>& x) {
  return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
}
inline std::vector<double> minus(std::vector<double> a, const std::vector<double>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
  return a;
}
inline void add(std::vector<double>& sum, const std::vector<double>& x, double factor = 1) {
  sum.resize(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) sum[i] += factor * x[i];
}

// The exact mean, in f64, of all ranks' flat gradients, and the mean of their norms.
struct Exact {
  std::vector<double> mean;
  double magnitude = 0;
};
inline Exact exact_mean(dist::ProcessGroup& group, const Tensor& flat) {
  Tensor all = Tensor::empty({group.size() * flat.numel()});
  group.all_gather(flat, all).wait();
  Exact out{std::vector<double>(static_cast<std::size_t>(flat.numel()))};
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto x = values(all.slice(0, rank * flat.numel(), (rank + 1) * flat.numel()));
    add(out.mean, x, 1.0 / group.size());
    out.magnitude += norm(x) / group.size();
  }
  return out;
}

}  // namespace brigade::test
