// SPDX-License-Identifier: MIT
// tests/core/tensor_test.cpp - construction, element access and memory of
// a tensor. Views: tensor_view_test.cpp.
#include "core/tensor.h"

#include <limits>
#include <vector>

#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;
using Values = std::vector<double>;

TEST_CASE("zeros, from and to_vector hold what they say in every dtype", "[core][tensor]") {
  for (DType dtype : kAllDTypes) {
    CAPTURE(name(dtype));
    const Tensor zero = Tensor::zeros({2, 3}, dtype);
    REQUIRE(test::values(zero) == Values(6, 0.0));
    REQUIRE(zero.bytes() == 6 * size_of(dtype));
    REQUIRE(zero.dtype() == dtype);
  }
  const Tensor t = Tensor::from<std::int64_t>({1, -2, 3}, {3});
  REQUIRE(t.to_vector<std::int64_t>() == std::vector<std::int64_t>{1, -2, 3});
  REQUIRE(Tensor::from<float>({2.5f}, {}).item() == 2.5);
}

TEST_CASE("a channels-last tensor has the same logical elements in another memory order", "[core][tensor]") {
  Tensor t = Tensor::zeros({1, 2, 2, 2}, DType::f32, {}, MemoryFormat::channels_last);
  for (int i = 0; i < 8; ++i) t.data<float>()[i] = static_cast<float>(i);
  REQUIRE(t.shape() == Shape{1, 2, 2, 2});
  REQUIRE(test::values(t) == Values{0, 2, 4, 6, 1, 3, 5, 7});
}

TEST_CASE("is_contiguous and memory_format tell the two dense orders apart", "[core][tensor]") {
  const Tensor rows = Tensor::empty({2, 3, 4, 5});
  const Tensor last = Tensor::empty({2, 3, 4, 5}, DType::f32, {}, MemoryFormat::channels_last);
  REQUIRE(rows.is_contiguous());
  REQUIRE_FALSE(rows.is_contiguous(MemoryFormat::channels_last));
  REQUIRE(rows.memory_format() == MemoryFormat::contiguous);
  REQUIRE_FALSE(last.is_contiguous());
  REQUIRE(last.is_contiguous(MemoryFormat::channels_last));
  REQUIRE(last.memory_format() == MemoryFormat::channels_last);
  REQUIRE_FALSE(last.slice(1, 0, 2).is_contiguous(MemoryFormat::channels_last));
  REQUIRE_FALSE(Tensor::empty({2, 3}).is_contiguous(MemoryFormat::channels_last));
}

TEST_CASE("sizes of 1 and empty tensors are dense whatever their strides", "[core][tensor]") {
  const Tensor one = Tensor::empty({2, 1, 4}).transpose(0, 1);  // [1, 2, 4], stride of dim 0 is 4
  REQUIRE(one.is_contiguous());
  // One channel: both orders at once, reported as contiguous.
  const Tensor grey = Tensor::empty({2, 1, 4, 5}, DType::f32, {}, MemoryFormat::channels_last);
  REQUIRE(grey.is_contiguous());
  REQUIRE(grey.is_contiguous(MemoryFormat::channels_last));
  REQUIRE(grey.memory_format() == MemoryFormat::contiguous);
  REQUIRE(Tensor::empty({3, 0, 2}).transpose(0, 2).is_contiguous());
}

TEST_CASE("same_view compares memory, offset, shape, strides and dtype", "[core][tensor]") {
  const Tensor t = Tensor::zeros({4, 4});
  REQUIRE(t.same_view(Tensor(t)));
  REQUIRE(t.view({2, 8}).view({4, 4}).same_view(t));
  REQUIRE_FALSE(t.same_view(t.view({16})));
  REQUIRE_FALSE(t.same_view(t.transpose(0, 1)));
  REQUIRE_FALSE(t.slice(0, 0, 2).same_view(t.slice(0, 2, 4)));
  REQUIRE_FALSE(t.same_view(Tensor::zeros({4, 4})));
  REQUIRE_FALSE(Tensor::over(t.storage(), {4, 4}, DType::i32).same_view(t));
  REQUIRE_FALSE(Tensor().same_view(Tensor()));
}

TEST_CASE("all views of one storage share elements and a version", "[core][tensor]") {
  const Tensor t = Tensor::zeros({2, 3});
  const Tensor row = t.select(0, 1);
  row.data<float>()[2] = 5;
  row.bump_version();
  REQUIRE(test::values(t) == Values{0, 0, 0, 0, 0, 5});
  REQUIRE(t.version() == 1);
}

TEST_CASE("over lays a smaller tensor on a storage and refuses a larger one", "[core][tensor][error]") {
  const Storage storage({}, 64);
  REQUIRE(Tensor::over(storage, {4, 4}, DType::f32).raw() == storage.data());
  REQUIRE_NOTHROW(Tensor::over(storage, {3}, DType::f64));
  REQUIRE_THROWS_WITH(Tensor::over(storage, {17}, DType::f32),
                      ContainsSubstring("f32 [17]") && ContainsSubstring("64 bytes"));
  // 2^62 elements of 4 bytes are 2^64 bytes, which is 0 in 64 bits.
  REQUIRE_THROWS_AS(Tensor::over(storage, {std::int64_t{1} << 62}, DType::f32), Error);
}

TEST_CASE("construction refuses impossible sizes and wrong counts", "[core][tensor][error]") {
  REQUIRE_THROWS_WITH(Tensor::empty({std::int64_t{1} << 61}, DType::f64), ContainsSubstring("too large"));
  REQUIRE_THROWS_WITH(Tensor::empty({std::int64_t{1} << 50}, DType::u8), ContainsSubstring("allocate"));
  REQUIRE_THROWS_WITH(Tensor::empty({-1}), ContainsSubstring("not negative"));
  REQUIRE_THROWS_WITH(Tensor::from<float>({1, 2, 3}, {2, 2}), "tensor: [2, 2] needs 4 values; got 3");
}

TEST_CASE("element access checks dtype and count", "[core][tensor][error]") {
  const Tensor t = Tensor::zeros({2});
  REQUIRE_THROWS_WITH(t.data<double>(), "tensor: expected dtype f64; got f32");
  REQUIRE_THROWS_WITH(t.to_vector<std::int32_t>(), "tensor: expected dtype i32; got f32");
  REQUIRE_THROWS_WITH(t.item(), "item: needs one element; got f32 [2]");
  REQUIRE(str(Tensor()) == "undefined tensor");
  REQUIRE_FALSE(Tensor().defined());
}
