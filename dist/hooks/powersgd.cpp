// SPDX-License-Identifier: MIT
// dist/hooks/powersgd.cpp - matrices travel as products of two thin ones (Vogels, Karimireddy and Jaggi 2019, arXiv
// 1905.13727). M [n, m] is a rank's gradient, as [first size, the others], plus its error:
//
//   P = mean over ranks of M Q, its columns made orthonormal;  Q = mean over ranks of Mᵀ P;  result P Qᵀ
//
// One step of power iteration, which starts with the last step's Q and so comes close to the best P over steps. A rank
// keeps M - P (Mᵀ P)ᵀ, what is lost of its own contribution, for the next step. Parameters that are no matrices, or so
// small that P and Q are not smaller, travel exactly, together with P; so does a bucket that is a part of a tensor.
// Factors and errors are kept by parameter: results do not depend on the bucket plan. Read before: dist/comm_hook.h.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/rng.h"
#include "dist/hooks/hooks.h"
#include "dist/scale.h"

namespace brigade::dist {
namespace {

float dot(const float* a, const float* b, std::int64_t count) {
  constexpr std::int64_t kLanes = 32;  // Independent sums, so that the loop is one of vectors.
  float lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  for (; i < count; ++i) lanes[0] += a[i] * b[i];
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

// y += factor * x
void add(float factor, const float* x, float* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) y[i] += factor * x[i];
}

// One parameter of a bucket, and where its factors are in the messages. P is row-major, Q is kept transposed: [r, m].
struct Matrix {
  int position;
  std::int64_t rows, columns;
  float *gradient, *error;
  std::int64_t p, q;  // Elements from the start of the message.
};

class PowerSgd final : public CommHook {
 public:
  PowerSgd(const optim::FlatParameters& parameters, int rank, std::uint64_t seed)
      : rank_(rank), seed_(seed), errors_(parameters.make_buffer()) {
    for (int i = 0; i < parameters.count(); ++i) {
      Tensor& q = factors_.emplace_back();
      if (!is_matrix(parameters.at(i).variable.value())) continue;
      q = Tensor::empty({rank_ * columns(parameters.at(i).variable.value())});
      for (std::int64_t j = 0; j < q.numel(); ++j)
        q.data<float>()[j] = normal_at(seed_, stream(parameters, i), static_cast<std::uint64_t>(j));
    }
  }

  HookReport mean(HookBucket& bucket, Transport& transport) override {
    if (!bucket.whole()) {
      transport.all_reduce(bucket.gradients, Reduce::mean);
      return {.wire_bytes = bucket.gradients.bytes()};
    }
    const std::int64_t exact = lay_out(bucket), size_p = matrices_.empty() ? exact : end_p_, size_q = end_q_;
    Tensor p_message = scratch(p_message_, size_p), q_message = scratch(q_message_, size_q);
    float* const ps = p_message.data<float>();
    float* const qs = q_message.data<float>();

    copy_exact(bucket,
               [&](float* gradient, std::int64_t at, std::int64_t n) { std::copy_n(gradient, n, ps + at); });
    for (const Matrix& m : matrices_) multiply_by_q(m, ps + m.p);
    transport.all_reduce(p_message, Reduce::mean);
    copy_exact(bucket,
               [&](float* gradient, std::int64_t at, std::int64_t n) { std::copy_n(ps + at, n, gradient); });
    if (matrices_.empty()) return {.wire_bytes = p_message.bytes()};
    // Some rank's gradients are not finite: the same P everywhere, so all ranks leave here.
    if (!all_finite(p_message)) {
      fill_nan(bucket);
      return {.wire_bytes = p_message.bytes()};
    }

    for (const Matrix& m : matrices_) {
      orthonormalise(ps + m.p, m.rows, stream(bucket.parameters, m.position) + 1);
      multiply_by_p(m, ps + m.p, qs + m.q);
      keep_lost(m, ps + m.p, qs + m.q);
    }
    transport.all_reduce(q_message, Reduce::mean);
    for (const Matrix& m : matrices_) {
      for (std::int64_t i = 0; i < m.rows; ++i) {
        float* const row = m.gradient + i * m.columns;
        std::fill_n(row, m.columns, 0.0f);
        for (int c = 0; c < rank_; ++c)
          add(ps[m.p + i * rank_ + c], qs + m.q + c * m.columns, row, m.columns);
      }
      std::copy_n(qs + m.q, rank_ * m.columns, factor(m));
    }
    return {.wire_bytes = p_message.bytes() + q_message.bytes()};
  }

  NamedTensors state(const optim::FlatParameters& parameters) override {
    NamedTensors out;
    append_state(out, "error", parameters, errors_);
    for (const int i : parameters.in_registration_order())
      if (const Tensor& q = factors_[static_cast<std::size_t>(i)]; q.defined())
        out.emplace_back(str("factor.", parameters.at(i).name), q);
    return out;
  }

 private:
  static std::int64_t columns(const Tensor& t) { return t.numel() / t.size(0); }
  // Where the factors are smaller than the matrix. Then r is less than both sizes.
  bool is_matrix(const Tensor& t) const {
    return t.dims() >= 2 && t.numel() > 0 && (t.size(0) + columns(t)) * rank_ < t.numel();
  }
  // Of random numbers: two a parameter, whatever the flat order.
  static std::uint64_t stream(const optim::FlatParameters& parameters, int position) {
    return 2 * static_cast<std::uint64_t>(parameters.index_at(position));
  }
  float* factor(const Matrix& m) { return factors_[static_cast<std::size_t>(m.position)].data<float>(); }

  // Finds the bucket's matrices. The message of P begins with the exact elements, whose number is returned.
  std::int64_t lay_out(const HookBucket& bucket) {
    matrices_.clear();
    std::int64_t exact = 0;
    bucket.for_each_parameter([&](int position, std::int64_t first, std::int64_t last) {
      const Tensor& value = bucket.parameters.at(position).variable.value();
      if (is_matrix(value))
        matrices_.push_back({position, value.size(0), columns(value), bucket.gradients.data<float>() + first,
                             bucket.of(errors_).data<float>() + first, 0, 0});
      else
        exact += last - first;
    });
    end_p_ = exact;
    end_q_ = 0;
    for (Matrix& m : matrices_) {
      m.p = end_p_;
      m.q = end_q_;
      end_p_ += m.rows * rank_;
      end_q_ += m.columns * rank_;
    }
    return exact;
  }

  // Calls copy(gradient, where in the message, elements) for each parameter that travels exactly.
  template <class Copy>
  void copy_exact(const HookBucket& bucket, const Copy& copy) const {
    std::int64_t at = 0;
    bucket.for_each_parameter([&](int position, std::int64_t first, std::int64_t last) {
      if (is_matrix(bucket.parameters.at(position).variable.value())) return;
      copy(bucket.gradients.data<float>() + first, at, last - first);
      at += last - first;
    });
  }

  // M = gradient + error, in the gradient's place; p = M Q.
  void multiply_by_q(const Matrix& m, float* p) {
    for (std::int64_t i = 0; i < m.rows; ++i) {
      float* const row = m.gradient + i * m.columns;
      add(1, m.error + i * m.columns, row, m.columns);
      for (int c = 0; c < rank_; ++c) p[i * rank_ + c] = dot(row, factor(m) + c * m.columns, m.columns);
    }
  }

  // q = (Mᵀ P)ᵀ
  void multiply_by_p(const Matrix& m, const float* p, float* q) const {
    std::fill_n(q, rank_ * m.columns, 0.0f);
    for (std::int64_t i = 0; i < m.rows; ++i)
      for (int c = 0; c < rank_; ++c)
        add(p[i * rank_ + c], m.gradient + i * m.columns, q + c * m.columns, m.columns);
  }

  // Of this rank's own q: errors against the mean over ranks would drift apart for ever.
  void keep_lost(const Matrix& m, const float* p, const float* q) const {
    for (std::int64_t i = 0; i < m.rows; ++i) {
      float* const error = m.error + i * m.columns;
      std::copy_n(m.gradient + i * m.columns, m.columns, error);
      for (int c = 0; c < rank_; ++c) add(-p[i * rank_ + c], q + c * m.columns, error, m.columns);
    }
  }

  // Gram-Schmidt in f64 on the columns of p [rows, rank]. Each column is projected twice, because the first time leaves
  // as much of the others as was lost in rounding. A column that depends on the others (or is zero) is drawn anew, or
  // it would be zero in all later steps, too.
  void orthonormalise(float* p, std::int64_t rows, std::uint64_t random_stream) {
    std::vector<double>& columns = columns_;
    columns.resize(static_cast<std::size_t>(rows * rank_));
    for (int c = 0; c < rank_; ++c) {
      double* const column = columns.data() + c * rows;
      for (std::int64_t i = 0; i < rows; ++i) column[i] = p[i * rank_ + c];
      for (std::uint64_t draw = 0;; ++draw) {
        const double before = norm(column, rows);
        for (int pass = 0; pass < 2; ++pass)
          for (int other = 0; other < c; ++other) project_out(columns.data() + other * rows, column, rows);
        const double left = norm(column, rows);
        if (left > 1e-10 * before && std::isnormal(left)) {
          for (std::int64_t i = 0; i < rows; ++i) column[i] /= left;
          break;
        }
        for (std::int64_t i = 0; i < rows; ++i)
          column[i] = normal_at(seed_, random_stream,
                                (draw * static_cast<std::uint64_t>(rank_) + static_cast<std::uint64_t>(c)) *
                                        static_cast<std::uint64_t>(rows) +
                                    static_cast<std::uint64_t>(i));
      }
      for (std::int64_t i = 0; i < rows; ++i) p[i * rank_ + c] = static_cast<float>(column[i]);
    }
  }
  static double norm(const double* x, std::int64_t count) {
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i) sum += x[i] * x[i];
    return std::sqrt(sum);
  }
  // x -= (unit · x) unit
  static void project_out(const double* unit, double* x, std::int64_t count) {
    double along = 0;
    for (std::int64_t i = 0; i < count; ++i) along += unit[i] * x[i];
    for (std::int64_t i = 0; i < count; ++i) x[i] -= along * unit[i];
  }

  std::int64_t rank_;
  std::uint64_t seed_;
  optim::FlatBuffer errors_;
  std::vector<Tensor> factors_;   // Q by position; undefined for what is no matrix.
  std::vector<Matrix> matrices_;  // Of the bucket at hand.
  std::int64_t end_p_ = 0, end_q_ = 0;
  std::vector<double> columns_;
  Tensor p_message_, q_message_;
};

}  // namespace

std::unique_ptr<CommHook> make_powersgd(const optim::FlatParameters& parameters, const HookOptions& options) {
  check_f32("powersgd", parameters);
  BRIGADE_CHECK(options.rank >= 1, "comm hook powersgd: the rank must be at least 1; got ", options.rank);
  return std::make_unique<PowerSgd>(parameters, options.rank, options.seed);
}

}  // namespace brigade::dist
