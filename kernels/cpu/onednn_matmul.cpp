// SPDX-License-Identifier: MIT
// kernels/cpu/onednn_matmul.cpp - the matrix product primitive, batched and strided.
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/onednn_primitives.h"

namespace brigade::onednn {

namespace {

using dnnl::memory;

struct Matrix {
  std::int64_t rows, cols, row_stride, col_stride;
};

Matrix last_two_dims(const Tensor& t) {
  const int d = t.dims();
  return {t.size(-2), t.size(-1), t.stride(d - 2), t.stride(d - 1)};
}

// Strides of a dim of size 1 are never used and may hold any number.
bool row_major(const Matrix& m) {
  return (m.cols == 1 || m.col_stride == 1) && (m.rows == 1 || m.row_stride >= m.cols);
}

Matrix transposed(const Matrix& m) { return {m.cols, m.rows, m.col_stride, m.row_stride}; }

// oneDNN derives the leading dimension from the strides, also from those of dims of size 1: give it sound
// ones. A batch that repeats one matrix is a batch of one, which oneDNN broadcasts.
memory::desc describe(const Tensor& t) {
  Matrix m = last_two_dims(t);
  if (row_major(m)) {
    m.col_stride = 1;
    if (m.rows == 1) m.row_stride = m.cols;
  } else {
    m.row_stride = 1;
    if (m.cols == 1) m.col_stride = m.rows;
  }
  const bool one = t.size(0) == 1 || t.stride(0) == 0;
  const std::int64_t batch_stride =
      one ? std::max(m.rows * m.row_stride, m.cols * m.col_stride) : t.stride(0);
  return {{one ? 1 : t.size(0), m.rows, m.cols},
          data_type(t.dtype()),
          {batch_stride, m.row_stride, m.col_stride}};
}

memory::desc describe_bias(const Tensor& bias) {
  const std::int64_t n = bias.numel();
  return {{1, 1, n}, memory::data_type::f32, {n, n, 1}};
}

}  // namespace

bool is_row_major(const Tensor& t) { return row_major(last_two_dims(t)); }

bool is_matrix(const Tensor& t) { return is_row_major(t) || row_major(transposed(last_two_dims(t))); }

void matmul(const Tensor& a, const Tensor& b, const Tensor& bias, double beta, Tensor& out) {
  Context& context = Context::of_this_thread();
  const memory::desc a_desc = describe(a), b_desc = describe(b), out_desc = describe(out);
  const memory::desc bias_desc = bias.defined() ? describe_bias(bias) : memory::desc();
  Key key(Key::Op::matmul);
  key.add(a_desc).add(b_desc).add(out_desc).add(bias.defined()).add(beta != 0);
  const Primitive& p = context.find(std::move(key), [&] {
    dnnl::primitive_attr attr = attributes();
    if (beta != 0) {
      dnnl::post_ops add_to_out;
      add_to_out.append_sum(1.0f);
      attr.set_post_ops(add_to_out);
    }
    const auto desc = bias.defined() ? dnnl::matmul::desc(a_desc, b_desc, bias_desc, out_desc)
                                     : dnnl::matmul::desc(a_desc, b_desc, out_desc);
    const dnnl::matmul::primitive_desc pd(desc, attr, context.engine());
    return Primitive{dnnl::matmul(pd), pd.scratchpad_desc(), {}};
  });

  std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, context.memory(a_desc, a)},
                                            {DNNL_ARG_WEIGHTS, context.memory(b_desc, b)},
                                            {DNNL_ARG_DST, context.memory(out_desc, out)}};
  if (bias.defined()) arguments.emplace(DNNL_ARG_BIAS, context.memory(bias_desc, bias));
  context.run(p, std::move(arguments));
}

}  // namespace brigade::onednn
