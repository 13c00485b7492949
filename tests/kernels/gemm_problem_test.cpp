// SPDX-License-Identifier: MIT
// tests/kernels/gemm_problem_test.cpp - row-major tensors told to a column-major library: what cuBLASLt is asked for is
// computed here by the book (Golub and Van Loan's column-major product), on the CPU, and compared with the reference.
#include "kernels/cuda/gemm_problem.h"

#include "tests/kernels/compare.h"
#include "tests/support/test.h"

using namespace brigade;
using cuda::GemmMatrix;

namespace {

// Element (r, c) of op(matrix) in batch `n`, as a column-major library reads memory.
double at(const GemmMatrix& m, const double* memory, std::int64_t n, std::int64_t r, std::int64_t c) {
  if (m.transposed) std::swap(r, c);
  return memory[n * m.batch_stride + r + c * m.ld];
}

// Computes `p` the way its words say, on the tensors' memory.
void column_major(const cuda::GemmProblem& p, const double* a, const double* b, double* d) {
  for (std::int64_t n = 0; n < p.batch; ++n)
    for (std::int64_t c = 0; c < p.d.cols; ++c)
      for (std::int64_t r = 0; r < p.d.rows; ++r) {
        double& to = d[n * p.d.batch_stride + r + c * p.d.ld];
        double sum = p.adds ? to : 0;
        for (std::int64_t k = 0; k < p.inner(); ++k) sum += at(p.a, a, n, r, k) * at(p.b, b, n, k, c);
        to = sum;
      }
}

void compare(const Tensor& a, const Tensor& b, double beta, const Tensor& out) {
  REQUIRE(cuda::is_gemm_matrix(a));
  REQUIRE(cuda::is_gemm_matrix(b));
  REQUIRE(cuda::is_row_major(out));
  Tensor expected = ops::clone(out);
  reference_kernels().matmul(a, b, beta, expected);
  const cuda::GemmProblem p = cuda::gemm_problem(a, b, {}, beta, out);
  for (const GemmMatrix* m : {&p.a, &p.b, &p.d}) CHECK(m->ld >= m->rows);  // cuBLASLt insists on it.
  // cuBLASLt's A is our b.
  column_major(p, b.data<double>(), a.data<double>(), out.data<double>());
  CHECK(test::far_from(out, expected, 1e-13) == "");
}

Tensor numbers(const Shape& shape, std::uint64_t seed) {
  return test::random(shape, seed, DType::f64).to({});
}

}  // namespace

TEST_CASE("a row-major product in column-major words is the same product", "[kernels][gemm]") {
  for (const double beta : {0.0, 1.0})
    for (const Shape& s : {Shape{1, 1, 1}, Shape{1, 7, 5}, Shape{5, 1, 3}, Shape{3, 4, 1}, Shape{6, 9, 5}}) {
      CAPTURE(beta, s[0], s[1], s[2]);
      const Tensor lefts[] = {numbers({1, s[0], s[1]}, 1), numbers({1, s[1], s[0]}, 2).transpose(1, 2),
                              numbers({1, s[0], s[1] + 3}, 3).slice(2, 2, s[1] + 2)};
      const Tensor rights[] = {numbers({1, s[1], s[2]}, 4), numbers({1, s[2], s[1]}, 5).transpose(1, 2),
                               numbers({1, s[1], s[2] + 5}, 6).slice(2, 1, s[2] + 1)};
      const Tensor outs[] = {numbers({1, s[0], s[2]}, 7),
                             numbers({1, s[0], s[2] + 4}, 8).slice(2, 3, s[2] + 3)};
      for (const Tensor& left : lefts)
        for (const Tensor& right : rights)
          for (const Tensor& out : outs) compare(left, right, beta, ops::clone(out));
      for (const Tensor& out : outs) compare(lefts[0], rights[0], beta, out);
    }
}

TEST_CASE("batches in column-major words keep their strides and repeat what is repeated", "[kernels][gemm]") {
  const Tensor a = numbers({4, 3, 5}, 1), b = numbers({4, 5, 2}, 2), out = numbers({4, 3, 2}, 3);
  compare(a, b, 0, ops::clone(out));
  compare(a, numbers({1, 5, 2}, 4).expand({4, 5, 2}), 1, ops::clone(out));
  compare(numbers({1, 3, 5}, 5).expand({4, 3, 5}), b, 0, ops::clone(out));
  // Heads split from the last dim: matrices of a batch interleave their rows.
  compare(numbers({3, 4, 5}, 6).transpose(0, 1), numbers({2, 4, 5}, 7).permute({1, 2, 0}), 0,
          ops::clone(out));
  compare(a, b, 0, numbers({3, 4, 2}, 8).transpose(0, 1));
  compare(a.slice(0, 0, 4, 2), b.slice(0, 1, 4, 2), 0, numbers({2, 3, 2}, 9));
}

TEST_CASE("matrices that no leading dimension describes are told apart", "[kernels][gemm]") {
  const Tensor t = numbers({2, 6, 8}, 1);
  CHECK(cuda::is_gemm_matrix(t));
  CHECK(cuda::is_gemm_matrix(t.transpose(1, 2)));
  CHECK_FALSE(cuda::is_row_major(t.transpose(1, 2)));
  CHECK(cuda::is_row_major(t.slice(1, 0, 6, 2)));
  CHECK_FALSE(cuda::is_gemm_matrix(t.slice(2, 0, 8, 2)));
  CHECK_FALSE(cuda::is_gemm_matrix(t.slice(1, 0, 1).expand({2, 6, 8})));
  CHECK(cuda::is_gemm_matrix(numbers({2, 6, 1}, 2)));
}

TEST_CASE("a product's key differs in whatever an algorithm depends on, and not in addresses",
          "[kernels][gemm]") {
  const Tensor a = numbers({2, 8, 8}, 1), b = numbers({2, 8, 8}, 2), out = numbers({2, 8, 8}, 3);
  const cuda::GemmProblem key = cuda::gemm_problem(a, b, {}, 0, out);
  CHECK(key == cuda::gemm_problem(b, a, {}, 0, ops::clone(out)));
  CHECK(key != cuda::gemm_problem(a, b, {}, 1, out));
  CHECK(key != cuda::gemm_problem(a, b.transpose(1, 2), {}, 0, out));
  CHECK(key != cuda::gemm_problem(a, b, numbers({8}, 4), 0, out));
  CHECK(key != cuda::gemm_problem(numbers({2, 8, 9}, 5).slice(2, 1, 9), b, {}, 0, out));  // 8 bytes aligned.
  CHECK(str(key) == "f64 [8, 8] x [8, 8], 2 of them");
  cuda::GemmProblem rectified = key;
  rectified.relu = true;
  CHECK(key != rectified);
  CHECK(str(rectified) == "f64 [8, 8] x [8, 8], 2 of them, ReLU");
}
