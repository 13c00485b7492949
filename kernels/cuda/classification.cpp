// SPDX-License-Identifier: MIT
// kernels/cuda/classification.cpp - softmax and cross entropy over dense rows.
#include "kernels/cuda/slots.h"
#include "kernels/cuda/walk.h"

namespace brigade::cuda {
namespace {

using device::RowFunction;

void forward(RowFunction function, std::string_view op, const Tensor& x, Tensor& out) {
  BRIGADE_CHECK(is_floating(x.dtype()), op, ": needs a floating dtype; got ", x.dtype());
  launched(device::softmax(function, x.dtype(), out.dtype(), x.raw(), out.raw(), rows_of(x), stream_of(x)),
           op);
}

void gradient(RowFunction function, std::string_view op, const Tensor& dy, const Tensor& y, Tensor& dx) {
  BRIGADE_CHECK(is_floating(y.dtype()), op, ": needs a floating dtype; got ", y.dtype());
  launched(device::softmax_grad(function, y.dtype(), dy.raw(), y.raw(), dx.raw(), rows_of(y), stream_of(y)),
           op);
}

device::Labels labels_of(const Tensor& labels, double smoothing, std::int64_t ignore_index) {
  return {.at = labels.data<std::int64_t>(), .smoothing = smoothing, .ignored = ignore_index};
}

}  // namespace

void softmax(const Tensor& x, Tensor& out) { forward(RowFunction::softmax, "softmax", x, out); }
void log_softmax(const Tensor& x, Tensor& out) { forward(RowFunction::log_softmax, "log_softmax", x, out); }
void softmax_grad(const Tensor& dy, const Tensor& y, Tensor& dx) {
  gradient(RowFunction::softmax, "softmax_grad", dy, y, dx);
}
void log_softmax_grad(const Tensor& dy, const Tensor& y, Tensor& dx) {
  gradient(RowFunction::log_softmax, "log_softmax_grad", dy, y, dx);
}

void cross_entropy(const Tensor& logits, const Tensor& labels, double smoothing, std::int64_t ignore_index,
                   Tensor& loss, Tensor& log_probs) {
  forward(RowFunction::log_softmax, "cross_entropy", logits, log_probs);
  const device::Rows rows = rows_of(logits);
  const Tensor losses = Tensor::empty({rows.count}, DType::f64, logits.device());
  launched(
      device::cross_entropy(log_probs.dtype(), log_probs.raw(), labels_of(labels, smoothing, ignore_index),
                            rows, losses.data<double>(), loss.raw(), stream_of(logits)),
      "cross_entropy");
}

void cross_entropy_grad(const Tensor& dloss, const Tensor& log_probs, const Tensor& labels, double smoothing,
                        std::int64_t ignore_index, Tensor& dlogits) {
  BRIGADE_CHECK(is_floating(dlogits.dtype()), "cross_entropy_grad: needs a floating dtype; got ",
                dlogits.dtype());
  Tensor counted = Tensor::empty({1}, DType::i64, log_probs.device());
  launched(device::cross_entropy_grad(dloss.raw(), dloss.dtype(), log_probs.dtype(), dlogits.dtype(),
                                      log_probs.raw(), labels_of(labels, smoothing, ignore_index),
                                      rows_of(log_probs), counted.data<std::int64_t>(), dlogits.raw(),
                                      stream_of(log_probs)),
           "cross_entropy_grad");
}

}  // namespace brigade::cuda
