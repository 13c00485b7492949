// SPDX-License-Identifier: MIT
// tests/kernels/loss_kernels_test.cpp - the softmax family, cross entropy and embedding.
#include <cmath>

#include "kernels/late_checks.h"
#include "tests/support/device.h"
#include "tests/support/test.h"

using namespace brigade;

namespace {

constexpr DType kFloats[] = {DType::f32, DType::f64, DType::bf16, DType::f16};

double tolerance(DType dtype) {
  return dtype == DType::f64 ? 1e-13 : dtype == DType::f32 ? 2e-6 : dtype == DType::f16 ? 0x1p-9 : 0x1p-7;
}

Tensor labels_of(const std::vector<std::int64_t>& v) {
  return test::from(v, {static_cast<std::int64_t>(v.size())});
}

}  // namespace

TEST_CASE("softmax equals its known values and does not overflow", "[kernels][softmax]") {
  const Tensor x = test::from<double>({0, std::log(3.0), 1000, 1000}, {2, 2});
  const Tensor expected = test::from<double>({0.25, 0.75, 0.5, 0.5}, {2, 2});
  CHECK(test::differs(ops::softmax(x), expected, 1e-15) == "");
  CHECK(test::differs(ops::log_softmax(x), ops::unary(Unary::log, expected), 1e-15) == "");
}

TEST_CASE("the softmax family equals the reference for every dtype and row length", "[kernels][softmax]") {
  for (DType dtype : kFloats)
    for (const Shape& shape :
         {Shape{5}, Shape{7, 1}, Shape{4, 3, 10}, Shape{300, 257}, Shape{7, 1501}, Shape{5, 2048}}) {
      INFO(str(dtype, " ", shape));
      const Tensor x = test::random(shape, 1, dtype), dy = test::random(shape, 2, dtype);
      Tensor expected = ops::empty_like(x);
      const double t = tolerance(dtype);
      const Tensor y = ops::softmax(x), lp = ops::log_softmax(x);
      test::reference().softmax(x, expected);
      CHECK(test::differs(y, expected, t) == "");
      test::reference().softmax_grad(dy, y, expected);
      CHECK(test::differs(ops::softmax_grad(dy, y), expected, t, t) == "");
      test::reference().log_softmax(x, expected);
      CHECK(test::differs(lp, expected, t, t) == "");
      test::reference().log_softmax_grad(dy, lp, expected);
      CHECK(test::differs(ops::log_softmax_grad(dy, lp), expected, t, 4 * t) == "");
    }
  const Tensor x = test::random({6, 4}, 1);
  CHECK(test::differs_bitwise(ops::softmax(x.transpose(0, 1)), ops::softmax(ops::clone(x.transpose(0, 1)))) ==
        "");
}

TEST_CASE("cross entropy equals its formula with smoothing and ignored rows", "[kernels][loss]") {
  // Row 0 has probabilities 1/4, 3/4 and label 1; row 1 is ignored; row 2 has 1/2, 1/2 and label 0.
  const Tensor logits = test::from<double>({0, std::log(3.0), 5, 6, 2, 2}, {3, 2});
  const Tensor labels = labels_of({1, -100, 0});
  const auto plain = ops::cross_entropy(logits, labels);
  CHECK(std::abs(plain.loss.item() - (-std::log(0.75) - std::log(0.5)) / 2) < 1e-15);
  const auto smooth = ops::cross_entropy(logits, labels, 0.2);
  const double row0 = -0.9 * std::log(0.75) - 0.1 * std::log(0.25);
  CHECK(std::abs(smooth.loss.item() - (row0 - std::log(0.5)) / 2) < 1e-15);
  const Tensor slope = ops::cross_entropy_grad(3, smooth, labels, 0.2, -100, DType::f64);
  const Tensor expected = test::from<double>({0.15 * 1.5, -0.15 * 1.5, 0, 0, -0.4 * 1.5, 0.4 * 1.5}, {3, 2});
  CHECK(test::differs(slope, expected, 1e-14) == "");
}

TEST_CASE("cross entropy and its gradient equal the reference for every dtype", "[kernels][loss]") {
  std::vector<std::int64_t> ids;
  for (int i = 0; i < 64; ++i) ids.push_back(i % 5 == 4 ? 7 : i * 7 % 10);
  const Tensor labels = labels_of(ids);
  for (DType dtype : kFloats)
    for (double smoothing : {0.0, 0.1}) {
      INFO(str(dtype, " smoothing ", smoothing));
      const Tensor logits = test::random({64, 10}, 1, dtype);
      const auto got = ops::cross_entropy(logits, labels, smoothing, 7);
      const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
      CHECK(got.loss.dtype() == wide);
      Tensor loss = test::empty({}, wide), log_probs = test::empty({64, 10}, wide),
             slope = ops::empty_like(logits);
      test::reference().cross_entropy(logits, labels, smoothing, 7, loss, log_probs);
      CHECK(test::differs(got.loss, loss, tolerance(wide)) == "");
      CHECK(test::differs(got.log_probs, log_probs, tolerance(wide)) == "");
      test::reference().cross_entropy_grad(test::full({}, 2.5), log_probs, labels, smoothing, 7, slope);
      CHECK(test::differs(ops::cross_entropy_grad(2.5, got, labels, smoothing, 7, dtype), slope,
                          2 * tolerance(dtype), 1e-7) == "");
    }
}

TEST_CASE("cross entropy of many classes equals the reference", "[kernels][loss]") {
  const std::int64_t rows = 9, classes = 1501;
  const Tensor logits = test::random({rows, classes}, 1);
  const Tensor labels = labels_of({0, 1500, 7, -100, 3, 900, 1024, 1023, 5});
  const auto got = ops::cross_entropy(logits, labels, 0.1);
  Tensor loss = test::empty({}), log_probs = test::empty({rows, classes}), slope = ops::empty_like(logits);
  test::reference().cross_entropy(logits, labels, 0.1, -100, loss, log_probs);
  CHECK(test::differs(got.loss, loss, tolerance(DType::f32)) == "");
  CHECK(test::differs(got.log_probs, log_probs, tolerance(DType::f32)) == "");
  test::reference().cross_entropy_grad(test::full({}, 2.5), log_probs, labels, 0.1, -100, slope);
  CHECK(test::differs(ops::cross_entropy_grad(2.5, got, labels, 0.1, -100, DType::f32), slope, 1e-5, 1e-7) ==
        "");
}

TEST_CASE("the mean loss of no counted row is NaN, and its gradient zero", "[kernels][loss]") {
  const auto none = ops::cross_entropy(test::random({2, 3}, 1), labels_of({-100, -100}));
  CHECK(std::isnan(none.loss.item()));
  CHECK(ops::sum_of_squares(ops::cross_entropy_grad(1, none, labels_of({-100, -100}), 0, -100, DType::f32)) ==
        0);
}

TEST_CASE("a label out of range is an error that names sample, label and classes",
          "[kernels][loss][A13][error]") {
  const Tensor logits = test::random({3, 10}, 1);
  for (std::int64_t bad : {10, 255, -1})
    CHECK_THROWS_WITH(ops::cross_entropy(logits, labels_of({0, 9, bad})),
                      ContainsSubstring("sample 2") && ContainsSubstring(str("label ", bad)) &&
                          ContainsSubstring("10 classes"));
  CHECK_THROWS_WITH(ops::cross_entropy(logits, labels_of({1, 2})),
                    ContainsSubstring("[3, 10]") && ContainsSubstring("[2]"));
  CHECK_NOTHROW(ops::cross_entropy(logits, labels_of({0, 9, 1})));
}

TEST_CASE("embedding takes rows by id and its gradient adds rows of equal id", "[kernels][embedding]") {
  const Tensor w = test::from<float>({1, 2, 3, 4, 5, 6}, {3, 2});
  const Tensor ids = test::from<std::int64_t>(std::vector<std::int64_t>{2, 0, 2, 2}, {2, 2});
  const Tensor y = ops::embedding(w, ids);
  CHECK(y.shape() == Shape{2, 2, 2});
  CHECK(test::values(y) == std::vector<double>{5, 6, 1, 2, 5, 6, 5, 6});
  Tensor dw = test::full({3, 2}, 9);
  ops::embedding_grad(y, ids, dw);
  CHECK(test::values(dw) == std::vector<double>{1, 2, 0, 0, 15, 18});
}

TEST_CASE("embedding equals the reference for many ids and wide rows", "[kernels][embedding]") {
  for (DType dtype : {DType::f32, DType::f64}) {
    const Tensor w = test::random({9, 130}, 1, dtype), dy = test::random({50, 40, 130}, 2, dtype);
    const Tensor ids = ops::unary(Unary::abs, test::random({40, 50}, 3, DType::i64)).transpose(0, 1);
    Tensor y = test::empty({50, 40, 130}, dtype), dw = ops::empty_like(w), expected = ops::empty_like(w);
    test::reference().embedding(w, ids, y);
    CHECK(test::differs_bitwise(ops::embedding(w, ids), y) == "");
    ops::embedding_grad(dy, ids, dw);
    test::reference().embedding_grad(dy, ids, expected);
    CHECK(test::differs(dw, expected, 1e-6, dtype == DType::f32 ? 1e-4 : 1e-12) == "");
  }
}

TEST_CASE("an id out of range is an error that names its position", "[kernels][embedding][error]") {
  const Tensor w = test::random({3, 2}, 1);
  const Tensor ids = test::from<std::int64_t>(std::vector<std::int64_t>{0, 1, 2, 3}, {2, 2});
  CHECK_THROWS_WITH(ops::embedding(w, ids), ContainsSubstring("id 3") && ContainsSubstring("position 3") &&
                                                ContainsSubstring("[2, 2]"));
  CHECK_THROWS_WITH(ops::embedding(w, ops::cast(ids, DType::f32)), ContainsSubstring("i64"));
  const auto found = [](const Tensor& where, std::int64_t limit, std::int64_t allowed) {
    Tensor out = test::empty({2}, DType::i64);
    test::fast().find_out_of_range(where, limit, allowed, out);
    return out.to_vector<std::int64_t>();
  };
  CHECK(found(ids, 3, -1) == std::vector<std::int64_t>{3, 3});
  CHECK(found(ids, 3, 3) == std::vector<std::int64_t>{-1, 0});
  CHECK(found(ids.transpose(0, 1), 2, -1) == std::vector<std::int64_t>{1, 2});
}

TEST_CASE("a late check of a device tells of an id or a label when it is judged, and until then it is a NaN",
          "[kernels][embedding][loss][error][late]") {
  const Tensor w = test::random({3, 2}, 1), ids = labels_of({0, 5, 2});
  const Tensor logits = test::random({3, 4}, 2), labels = labels_of({0, 1, -1});
  LateChecks checks(test::test_device());
  if (test::test_device() == Device{}) {  // Nothing is waited for: no check is late.
    CHECK_THROWS_WITH(ops::embedding(w, ids), ContainsSubstring("got id 5 at position 1 of [3]"));
    CHECK_NOTHROW(checks.judge());
    return;
  }
  const auto rows = ops::embedding(w, ids).to({}).to_vector<float>();
  CHECK((std::isnan(rows[2]) && std::isnan(rows[3])));
  CHECK((rows[0] == w.to({}).to_vector<float>()[0] && !std::isnan(rows[4])));
  Tensor dw = test::empty({3, 2});
  ops::embedding_grad(test::full({3, 2}, 1), ids, dw);
  CHECK(dw.to({}).to_vector<float>() == std::vector<float>{1, 1, 0, 0, 1, 1});
  CHECK_NOTHROW(checks.judge());  // Not fetched yet.
  checks.fetch();
  CHECK_THROWS_WITH(checks.judge(),
                    ContainsSubstring("embedding: ids must lie in [0, 3); got id 5 at position 1 of [3]"));
  const auto loss = ops::cross_entropy(logits, labels);
  CHECK(std::isnan(loss.loss.item()));
  checks.fetch();
  CHECK_THROWS_WITH(checks.judge(), ContainsSubstring("got label -1 at sample 2 with 4 classes"));
  static_cast<void>(ops::cross_entropy(logits, labels_of({0, 1, 3})));
  checks.fetch();
  CHECK_NOTHROW(checks.judge());
}
