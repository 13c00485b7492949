// SPDX-License-Identifier: MIT
// kernels/ops_classification.cpp - softmax, cross entropy and embedding: labels and ids are
// checked here, before a kernel could read past a row (an index out of range must be an error
// where it was made, not a crash later).
#include "core/span.h"
#include "kernels/late_checks.h"
#include "kernels/ops_check.h"

namespace brigade::ops {
namespace {

void check_rows(std::string_view op, const Tensor& x) {
  check_floating(op, x);
  BRIGADE_CHECK(x.dims() >= 1 && x.size(-1) >= 1, op, ": needs [.., D] with D at least 1; got ", x);
}

void check_ids(std::string_view op, const Tensor& ids) {
  check_defined(op, ids);
  BRIGADE_CHECK(ids.dtype() == DType::i64, op, ": ids must be i64; got ", ids);
}

// Fails with text(position, value) of the first one outside of [0, limit) that is not `allowed`: now, or later where a
// device would have to be waited for and nobody wants to.
template <class Text>
void check_range(const Tensor& ids, std::int64_t limit, std::int64_t allowed, const Text& text) {
  Tensor found = Tensor::empty({2}, DType::i64, ids.device());
  kernels(ids.device()).find_out_of_range(ids, limit, allowed, found);
  if (LateChecks* const late = LateChecks::of(ids.device())) return late->add({found, text});
  std::int64_t first[2];
  runtime(ids.device()).copy_to_host(first, found.raw(), sizeof first);
  if (first[0] >= 0) fail(text(first[0], first[1]));
}

void check_labels(const Tensor& rows, const Tensor& labels, double smoothing) {
  check_rows("cross_entropy", rows);
  check_ids("cross_entropy", labels);
  BRIGADE_CHECK(rows.dims() == 2 && labels.dims() == 1 && rows.size(0) == labels.size(0),
                "cross_entropy: needs logits [R, C] and labels [R]; got ", rows, " and ", labels);
  BRIGADE_CHECK(labels.device() == rows.device(), "cross_entropy: labels must be on ", rows.device(),
                "; got ", labels.device());
  BRIGADE_CHECK(smoothing >= 0 && smoothing <= 1, "cross_entropy: smoothing must lie in [0, 1]; got ",
                smoothing);
}

void check_label_range(const Tensor& rows, const Tensor& labels, std::int64_t ignore_index) {
  check_range(labels, rows.size(1), ignore_index,
              [classes = rows.size(1), ignore_index](std::int64_t sample, std::int64_t label) {
                return str("cross_entropy: labels must lie in [0, ", classes, ") or be ignore_index ",
                           ignore_index, "; got label ", label, " at sample ", sample, " with ", classes,
                           " classes");
              });
}

template <class Kernel>
Tensor row_gradient(std::string_view op, const Tensor& dy, const Tensor& y, Kernel KernelTable::*kernel) {
  const Span span(op);
  check_rows(op, y);
  check_same(op, dy, y);
  Tensor dx = Tensor::empty(y.shape(), y.dtype(), y.device());
  (kernels(y.device()).*kernel)(contiguous(dy), contiguous(y), dx);
  return dx;
}

}  // namespace

Tensor softmax(const Tensor& x) {
  const Span span("softmax");
  check_rows("softmax", x);
  Tensor out = Tensor::empty(x.shape(), x.dtype(), x.device());
  kernels(x.device()).softmax(contiguous(x), out);
  return out;
}

Tensor log_softmax(const Tensor& x) {
  const Span span("log_softmax");
  check_rows("log_softmax", x);
  Tensor out = Tensor::empty(x.shape(), x.dtype(), x.device());
  kernels(x.device()).log_softmax(contiguous(x), out);
  return out;
}

Tensor softmax_grad(const Tensor& dy, const Tensor& y) {
  return row_gradient("softmax_grad", dy, y, &KernelTable::softmax_grad);
}

Tensor log_softmax_grad(const Tensor& dy, const Tensor& y) {
  return row_gradient("log_softmax_grad", dy, y, &KernelTable::log_softmax_grad);
}

CrossEntropy cross_entropy(const Tensor& logits, const Tensor& labels, double smoothing,
                           std::int64_t ignore_index) {
  const Span span("cross_entropy", [&] { return SpanDetails{{"x", logits.shape()}}; });
  check_labels(logits, labels, smoothing);
  check_label_range(logits, labels, ignore_index);
  // 16-bit logits get an f32 loss and f32 log-probabilities: their differences
  // are what the gradient is made of.
  const DType dtype = parameter_dtype(logits.dtype());
  CrossEntropy result{Tensor::empty({}, dtype, logits.device()),
                      Tensor::empty(logits.shape(), dtype, logits.device())};
  kernels(logits.device())
      .cross_entropy(contiguous(logits), contiguous(labels), smoothing, ignore_index, result.loss,
                     result.log_probs);
  return result;
}

Tensor cross_entropy_grad(double dloss, const CrossEntropy& forward, const Tensor& labels, double smoothing,
                          std::int64_t ignore_index, DType dtype) {
  const Tensor factor = full({}, dloss, DType::f64, forward.log_probs.device());
  return cross_entropy_grad(factor, forward, labels, smoothing, ignore_index, dtype);
}

Tensor cross_entropy_grad(const Tensor& dloss, const CrossEntropy& forward, const Tensor& labels,
                          double smoothing, std::int64_t ignore_index, DType dtype) {
  const Span span("cross_entropy_grad", [&] { return SpanDetails{{"x", forward.log_probs.shape()}}; });
  check_labels(forward.log_probs, labels, smoothing);
  // Of late checks one is enough: forward has made it.
  if (LateChecks::of(labels.device()) == nullptr) check_label_range(forward.log_probs, labels, ignore_index);
  BRIGADE_CHECK(dloss.defined() && dloss.numel() == 1 && dloss.device() == labels.device() &&
                    (dloss.dtype() == DType::f32 || dloss.dtype() == DType::f64),
                "cross_entropy_grad: dloss must be one f32 or f64 on ", labels.device(), "; got ", dloss);
  BRIGADE_CHECK(is_floating(dtype), "cross_entropy_grad: needs a floating dtype; got ", dtype);
  Tensor dlogits = Tensor::empty(forward.log_probs.shape(), dtype, forward.log_probs.device());
  kernels(dlogits.device())
      .cross_entropy_grad(dloss, forward.log_probs, contiguous(labels), smoothing, ignore_index, dlogits);
  return dlogits;
}

Tensor embedding(const Tensor& w, const Tensor& ids) {
  const Span span("embedding");
  check_floating("embedding", w);
  check_ids("embedding", ids);
  BRIGADE_CHECK(w.dims() == 2, "embedding: weight is [V, D]; got ", w);
  BRIGADE_CHECK(w.device() == ids.device(), "embedding: ids must be on ", w.device(), "; got ", ids.device());
  // No value is allowed beside the range, so one that lies in it is named; an empty table has none.
  BRIGADE_CHECK(w.size(0) > 0 || ids.numel() == 0,
                "embedding: ids must lie in [0, 0), which holds none; got ids ", ids.shape());
  check_range(ids, w.size(0), 0,
              [rows = w.size(0), shape = ids.shape()](std::int64_t position, std::int64_t id) {
                return str("embedding: ids must lie in [0, ", rows, "); got id ", id, " at position ",
                           position, " of ", shape);
              });
  Shape shape = ids.shape();
  shape.push_back(w.size(1));
  Tensor out = Tensor::empty(shape, w.dtype(), w.device());
  kernels(w.device()).embedding(contiguous(w), contiguous(ids), out);
  return out;
}

void embedding_grad(const Tensor& dy, const Tensor& ids, Tensor& dw) {
  const Span span("embedding_grad");
  check_floating("embedding_grad", dy);
  check_ids("embedding_grad", ids);
  check_floating("embedding_grad", dw);
  BRIGADE_CHECK(dw.dims() == 2 && dw.is_contiguous(), "embedding_grad: dw must be contiguous [V, D]; got ",
                dw);
  Shape shape = ids.shape();
  shape.push_back(dw.size(1));
  BRIGADE_CHECK(dy.shape() == shape && dy.device() == dw.device() && ids.device() == dw.device(),
                "embedding_grad: dy must be ", shape, "; got ", dy);
  BRIGADE_CHECK(dy.dtype() == dw.dtype(), "embedding_grad: dtypes must be equal; got ", dy, " and ", dw);
  if (LateChecks::of(dw.device()) == nullptr)
    check_range(ids, dw.size(0), 0, [rows = dw.size(0)](std::int64_t position, std::int64_t id) {
      return str("embedding_grad: ids must lie in [0, ", rows, "); got id ", id, " at position ", position);
    });
  kernels(dw.device()).embedding_grad(contiguous(dy), contiguous(ids), dw);
  dw.bump_version();
}

}  // namespace brigade::ops
