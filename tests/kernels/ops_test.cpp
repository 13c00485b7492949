// SPDX-License-Identifier: MIT
// tests/kernels/ops_test.cpp - joining and reshaping, memory formats of results, empty tensors, and what the
// checked functions say when arguments do not fit.
#include "kernels/ops.h"

#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;
using test::values;

TEST_CASE("full, arange and clone make dense tensors of their values", "[kernels][ops]") {
  CHECK(values(ops::full({2, 2}, 1.5)) == std::vector<double>{1.5, 1.5, 1.5, 1.5});
  CHECK(values(ops::arange(4)) == std::vector<double>{0, 1, 2, 3});
  CHECK(ops::arange(3, DType::bf16).dtype() == DType::bf16);
  const Tensor x = test::random({3, 4}, 1);
  const Tensor copy = ops::clone(x.transpose(0, 1));
  CHECK(copy.is_contiguous());
  CHECK(!(copy.storage() == x.storage()));
}

TEST_CASE("contiguous, cast and reshape return their argument where nothing needs to change",
          "[kernels][ops]") {
  const Tensor x = test::random({2, 6}, 1);
  CHECK(ops::contiguous(x).same_view(x));
  CHECK(ops::cast(x, DType::f32).same_view(x));
  CHECK(ops::reshape(x, {3, -1}).storage() == x.storage());
  const Tensor turned = ops::reshape(x.transpose(0, 1), {-1});
  CHECK(!(turned.storage() == x.storage()));
  CHECK(test::differs_bitwise(turned, ops::clone(x.transpose(0, 1)).view({12})) == "");
  CHECK_THROWS_WITH(ops::reshape(x, {5, 2}), ContainsSubstring("[2, 6]") && ContainsSubstring("[5, 2]"));
}

TEST_CASE("concat puts tensors behind each other along any dim", "[kernels][ops]") {
  const std::vector<Tensor> xs{Tensor::from<float>({1, 2, 3, 4}, {2, 2}), Tensor::from<float>({5, 6}, {2, 1}),
                               Tensor::empty({2, 0})};
  CHECK(values(ops::concat(xs, 1)) == std::vector<double>{1, 2, 5, 3, 4, 6});
  const std::vector<Tensor> rows{xs[0], xs[0].transpose(0, 1)};
  CHECK(values(ops::concat(rows, -2)) == std::vector<double>{1, 2, 3, 4, 1, 3, 2, 4});
  CHECK_THROWS_WITH(ops::concat(xs, 0), ContainsSubstring("concat") && ContainsSubstring("[2, 2]") &&
                                            ContainsSubstring("[2, 1]"));
  const std::vector<Tensor> mixed{xs[0], ops::cast(xs[0], DType::f64)};
  CHECK_THROWS_WITH(ops::concat(mixed, 0), ContainsSubstring("concat") && ContainsSubstring("f64"));
}

TEST_CASE("stack adds a dim", "[kernels][ops]") {
  const std::vector<Tensor> xs{Tensor::from<float>({1, 2}, {2}), Tensor::from<float>({3, 4}, {2})};
  CHECK(values(ops::stack(xs, 0)) == std::vector<double>{1, 2, 3, 4});
  CHECK(values(ops::stack(xs, -1)) == std::vector<double>{1, 3, 2, 4});
  CHECK(ops::stack(xs, 1).shape() == Shape{2, 2});
  const std::vector<Tensor> uneven{xs[0], Tensor::empty({3})};
  CHECK_THROWS_WITH(ops::stack(uneven, 0),
                    ContainsSubstring("stack") && ContainsSubstring("[2]") && ContainsSubstring("[3]"));
}

TEST_CASE("pad surrounds a tensor with a value in its own memory format", "[kernels][ops]") {
  CHECK(values(ops::pad(Tensor::from<float>({1, 2}, {1, 2}), {1, 0}, {0, 2}, 9)) ==
        std::vector<double>{9, 9, 9, 9, 1, 2, 9, 9});
  const Tensor x = test::random({2, 3, 4, 5}, 1, DType::f32, MemoryFormat::channels_last);
  const Tensor y = ops::pad(x, {0, 0, 2, 2}, {0, 0, 1, 3});
  CHECK(y.shape() == Shape{2, 3, 7, 10});
  CHECK(y.memory_format() == MemoryFormat::channels_last);
  CHECK(test::differs_bitwise(y.slice(2, 2, 6).slice(3, 2, 7), x) == "");
  CHECK(ops::reduce(Reduction::max, ops::unary(Unary::abs, y.slice(3, 0, 2))).item() == 0);
  CHECK_THROWS_WITH(ops::pad(x, {1}, {1}), ContainsSubstring("pad") && ContainsSubstring("[2, 3, 4, 5]"));
}

TEST_CASE("elementwise results keep channels_last", "[kernels][ops]") {
  const Tensor x = test::random({2, 3, 4, 5}, 1, DType::f32, MemoryFormat::channels_last);
  const Tensor bias = test::random({3, 1, 1}, 2);
  for (const Tensor& y : {ops::unary(Unary::relu, x), ops::add(x, bias), ops::add(bias, x), ops::mul(x, 2.0),
                          ops::cast(x, DType::bf16), ops::dropout(x, 0.5, 1, 1),
                          ops::where(ops::binary(Binary::gt, x, 0.0), x, bias), ops::empty_like(x)})
    CHECK(y.memory_format() == MemoryFormat::channels_last);
}

TEST_CASE("every operation accepts tensors without elements", "[kernels][ops]") {
  const Tensor x = Tensor::empty({0, 3}), image = Tensor::empty({0, 3, 4, 4});
  const Tensor weight = test::random({5, 3}, 1), ids = Tensor::empty({0}, DType::i64);
  CHECK(ops::unary(Unary::exp, x).shape() == Shape{0, 3});
  CHECK(ops::add(x, test::random({1, 3}, 1)).shape() == Shape{0, 3});
  CHECK(ops::mul(x, 2.0).numel() == 0);
  CHECK(ops::where(Tensor::empty({0, 3}, DType::boolean), x, x).numel() == 0);
  CHECK(ops::dropout(x, 0.5, 1, 1).numel() == 0);
  CHECK(ops::clone(x.transpose(0, 1)).shape() == Shape{3, 0});
  CHECK(ops::clone(image, MemoryFormat::channels_last).numel() == 0);
  CHECK(ops::cast(x, DType::bf16).dtype() == DType::bf16);
  CHECK(ops::pad(x, {1, 0}, {0, 0}, 4).shape() == Shape{1, 3});
  CHECK(values(ops::reduce(Reduction::sum, x, {0})) == std::vector<double>{0, 0, 0});
  CHECK(ops::argmax(x, 1).shape() == Shape{0});
  CHECK(ops::softmax(x).numel() == 0);
  CHECK(ops::log_softmax_grad(x, x).numel() == 0);
  CHECK(ops::embedding(weight, ids).shape() == Shape{0, 3});
  Tensor dw = test::random({5, 3}, 1);
  ops::embedding_grad(x, ids, dw);
  CHECK(ops::sum_of_squares(dw) == 0);
  Generator generator;
  CHECK(ops::randn({0}, generator).numel() == 0);
  Tensor out = x;
  ops::fill_(out, 1);
  ops::add_(out, x);
  ops::copy_(out, x);
}

TEST_CASE("an operation names itself and both shapes when they do not broadcast", "[kernels][ops][error]") {
  const Tensor a = test::random({2, 3}, 1), b = test::random({4, 3}, 2);
  CHECK_THROWS_WITH(ops::add(a, b),
                    ContainsSubstring("add") && ContainsSubstring("[2, 3]") && ContainsSubstring("[4, 3]"));
  CHECK_THROWS_WITH(ops::where(ops::binary(Binary::gt, a, 0.0), a, b),
                    ContainsSubstring("where") && ContainsSubstring("[4, 3]"));
  Tensor row = test::random({3}, 3);
  CHECK_THROWS_WITH(ops::add_(row, a),
                    ContainsSubstring("add") && ContainsSubstring("[3]") && ContainsSubstring("[2, 3]"));
  CHECK_THROWS_WITH(ops::copy_(row, a),
                    ContainsSubstring("copy_") && ContainsSubstring("[3]") && ContainsSubstring("[2, 3]"));
}

TEST_CASE("an operation names both dtypes when they differ, or the one that has no such operation",
          "[kernels][ops][error]") {
  const Tensor a = test::random({2}, 1), b = test::random({2}, 2, DType::bf16), n = ops::arange(2);
  const Tensor flags = ops::binary(Binary::gt, a, 0.0);
  CHECK_THROWS_WITH(ops::mul(a, b), ContainsSubstring("mul") && ContainsSubstring("f32 [2]") &&
                                        ContainsSubstring("bf16 [2]"));
  CHECK_THROWS_WITH(ops::unary(Unary::exp, n), ContainsSubstring("exp") && ContainsSubstring("i64"));
  CHECK_THROWS_WITH(ops::unary(Unary::neg, flags), ContainsSubstring("neg") && ContainsSubstring("bool"));
  CHECK_THROWS_WITH(ops::sub(flags, flags), ContainsSubstring("sub") && ContainsSubstring("bool"));
  CHECK_THROWS_WITH(ops::binary(Binary::pow, n, n), ContainsSubstring("pow") && ContainsSubstring("i64"));
  CHECK_THROWS_WITH(ops::mul(n, 0.5), ContainsSubstring("mul") && ContainsSubstring("whole number") &&
                                          ContainsSubstring("0.5"));
  CHECK_THROWS_WITH(ops::reduce(Reduction::mean, n), ContainsSubstring("mean") && ContainsSubstring("i64"));
  CHECK_THROWS_WITH(ops::where(a, a, a), ContainsSubstring("where") && ContainsSubstring("bool"));
  Tensor out = ops::clone(a);
  CHECK_THROWS_WITH(ops::binary_(Binary::lt, out, a), ContainsSubstring("lt") && ContainsSubstring("bool"));
  CHECK_THROWS_WITH(ops::add(a, Tensor{}), ContainsSubstring("add") && ContainsSubstring("undefined"));
}

TEST_CASE("writing through an expanded tensor is refused", "[kernels][ops][error]") {
  Tensor x = test::random({1, 3}, 1).expand({2, 3});
  CHECK_THROWS_WITH(ops::fill_(x, 0), ContainsSubstring("fill_") && ContainsSubstring("expanded"));
  CHECK_THROWS_WITH(ops::add_(x, x), ContainsSubstring("add") && ContainsSubstring("expanded"));
  CHECK_THROWS_WITH(ops::copy_(x, x), ContainsSubstring("copy_") && ContainsSubstring("expanded"));
}

TEST_CASE("structured operations name the shapes that do not fit", "[kernels][ops][error]") {
  const Tensor image = test::random({8, 3, 32, 32}, 1), rows = test::random({32, 512}, 2);
  CHECK_THROWS_WITH(ops::conv2d(image, test::random({64, 4, 3, 3}, 3), {}, {.kernel = {3, 3}}),
                    ContainsSubstring("conv2d") && ContainsSubstring("[8, 3, 32, 32]") &&
                        ContainsSubstring("[64, 4, 3, 3]"));
  CHECK_THROWS_WITH(ops::conv2d(image, test::random({64, 3, 40, 3}, 3), {}, {.kernel = {40, 3}}),
                    ContainsSubstring("conv2d") && ContainsSubstring("larger than the padded image"));
  CHECK_THROWS_WITH(ops::linear(rows, test::random({10, 256}, 3), {}), ContainsSubstring("linear") &&
                                                                           ContainsSubstring("[32, 512]") &&
                                                                           ContainsSubstring("[10, 256]"));
  CHECK_THROWS_WITH(ops::matmul(rows, rows), ContainsSubstring("matmul") && ContainsSubstring("[32, 512]"));
  CHECK_THROWS_WITH(ops::max_pool2d(rows, {}),
                    ContainsSubstring("max_pool2d") && ContainsSubstring("[32, 512]"));
  CHECK_THROWS_WITH(ops::avg_pool2d(image, {.kernel = {2, 2}, .padding = {2, 2}}),
                    ContainsSubstring("avg_pool2d") && ContainsSubstring("half"));
  Tensor none;
  CHECK_THROWS_WITH(ops::batch_norm_train(image, ops::full({4}, 1), ops::full({3}, 0), 0.1, 1e-5, none, none),
                    ContainsSubstring("gamma") && ContainsSubstring("[3]") && ContainsSubstring("[4]"));
  CHECK_THROWS_WITH(ops::batch_norm_train(test::random({1, 3}, 1), ops::full({3}, 1), ops::full({3}, 0), 0.1,
                                          1e-5, none, none),
                    ContainsSubstring("more than one value") && ContainsSubstring("[1, 3]"));
}
