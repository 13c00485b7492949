// SPDX-License-Identifier: MIT
// tests/kernels/random_test.cpp - random tensors and dropout: moments, and that a number
// depends on its logical position only.
#include <bit>
#include <cmath>

#include "core/parallel.h"
#include "core/rng.h"
#include "kernels/cpu/random_blocks.h"
#include "tests/support/device.h"
#include "tests/support/test.h"

using namespace brigade;

namespace {

struct Moments {
  double mean, variance, least, largest;
};

Moments moments(const Tensor& t) {
  const auto v = test::values(t);
  Moments m{0, 0, v[0], v[0]};
  for (double x : v) {
    m.mean += x / static_cast<double>(v.size());
    m.least = std::min(m.least, x);
    m.largest = std::max(m.largest, x);
  }
  for (double x : v) m.variance += (x - m.mean) * (x - m.mean) / static_cast<double>(v.size());
  return m;
}

// The same shape in several memory layouts, all of which must hold the same numbers.
std::vector<Tensor> empty_layouts(DType dtype) {
  return {test::empty({3, 5, 4, 7}, dtype), test::empty({3, 5, 4, 7}, dtype, MemoryFormat::channels_last),
          test::empty({7, 5, 4, 3}, dtype).transpose(0, 3),
          test::empty({3, 5, 9, 7}, dtype).slice(2, 1, 9, 2)};
}

// What a normal number may be off, relatively. Not on a CPU; but a GPU has its own logarithm, sine and cosine in f64,
// whose last bits may differ, and with them the rounding to f32, or that after it.
double doubt(DType dtype) {
  if (test::test_device().type == DeviceType::cpu) return 0;
  return dtype == DType::f32   ? 0x1p-23
         : dtype == DType::f64 ? 0x1p-22
         : dtype == DType::f16 ? 0x1p-10
                               : 0x1p-7;
}

}  // namespace

TEST_CASE("uniform and normal numbers have the moments they should", "[kernels][random]") {
  Generator generator{.seed = 12};
  // 10^5 numbers: the mean of a unit-variance sample is off by 0.003 at one sigma; five sigma are allowed.
  const Moments u = moments(ops::rand({100000}, generator, -1, 3, DType::f32, test::test_device()));
  CHECK(std::abs(u.mean - 1) < 5 * 4 / std::sqrt(12e5));
  CHECK(std::abs(u.variance - 16.0 / 12) < 0.02);
  CHECK(u.least >= -1);
  CHECK(u.largest < 3);
  CHECK(u.least < -0.99);
  CHECK(u.largest > 2.99);
  const Moments n = moments(ops::randn({100000}, generator, 2, 0.5, DType::f32, test::test_device()));
  CHECK(std::abs(n.mean - 2) < 5 * 0.5 / std::sqrt(1e5));
  CHECK(std::abs(n.variance - 0.25) < 0.007);
  CHECK(n.largest > 2 + 3 * 0.5);
  CHECK(generator.next_stream == 2);
}

TEST_CASE("a random element is uniform_at or normal_at of its row-major index in any layout",
          "[kernels][random]") {
  const int threads = num_threads();
  for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16})
    for (Tensor out : empty_layouts(dtype)) {
      INFO(str(dtype, " strides ", out.strides()));
      for (int count : {1, 3}) {
        set_num_threads(count);
        Generator generator{.seed = 5, .next_stream = 9};
        ops::uniform_(out, generator, 0, 1);
        auto got = test::values(out);
        for (std::size_t i = 0; i < got.size(); ++i) {
          const Tensor expected = ops::cast(test::full({}, static_cast<double>(uniform_at(5, 9, i))), dtype);
          if (got[i] != expected.item()) FAIL("uniform " << i);
        }
        ops::normal_(out, generator, 0, 1);
        got = test::values(out);
        for (std::size_t i = 0; i < got.size(); ++i) {
          const Tensor expected = ops::cast(test::full({}, static_cast<double>(normal_at(5, 10, i))), dtype);
          if (std::abs(got[i] - expected.item()) > doubt(dtype) * std::abs(expected.item()))
            FAIL("normal " << i);
        }
        Tensor reference = test::empty(out.shape(), dtype);
        test::reference().random_normal(5, 10, 0.25, 3, reference);
        test::fast().random_normal(5, 10, 0.25, 3, out);
        CHECK(test::differs(out, reference, doubt(dtype)) == "");
        test::reference().random_uniform(5, 10, -2, 3, reference);
        test::fast().random_uniform(5, 10, -2, 3, out);
        CHECK(test::differs_bitwise(out, reference) == "");
      }
      set_num_threads(threads);
    }
}

TEST_CASE("a large random tensor does not depend on the number of threads", "[kernels][random]") {
  const int threads = num_threads();
  Tensor one = test::empty({250003}), three = test::empty({250003});
  set_num_threads(1);
  test::fast().random_normal(1, 2, 0, 1, one);
  set_num_threads(3);
  test::fast().random_normal(1, 2, 0, 1, three);
  set_num_threads(threads);
  CHECK(test::differs_bitwise(one, three) == "");
  CHECK(std::abs(three.to_vector<float>()[200001] / normal_at(1, 2, 200001) - 1) <= doubt(DType::f32));
}

TEST_CASE("many normal numbers at once are normal2 bit for bit, at the ends and on the axes too",
          "[kernels][random]") {
  // Words with a logarithm near zero and near its largest, and angles on and beside every multiple of 45 degrees.
  std::vector<std::uint32_t> radii{0,          1,          2,          0x5a827999, 0x5a82799a,
                                   0xb504f332, 0xb504f333, 0x7fffffff, 0x80000000};
  for (std::uint32_t i = 1; i < 40; ++i) radii.push_back(0u - i);
  std::vector<std::uint32_t> angles;
  for (std::uint32_t eighth = 0; eighth < 8; ++eighth)
    for (std::uint32_t d = 0; d < 5; ++d) {
      angles.push_back((eighth << 29) + d);
      angles.push_back((eighth << 29) - d);
      angles.push_back((eighth << 29) + (1u << (4 * d + 3)));
    }
  float first[cpu::kRandomBlocks], second[cpu::kRandomBlocks];
  for (const std::uint32_t a : radii)
    for (std::size_t at = 0; at < angles.size(); at += cpu::kRandomBlocks) {
      const std::size_t count = std::min<std::size_t>(cpu::kRandomBlocks, angles.size() - at);
      const std::vector<std::uint32_t> as(count, a);
      cpu::normal_pairs(as.data(), angles.data() + at, static_cast<int>(count), first, second);
      for (std::size_t i = 0; i < count; ++i) {
        const auto expected = normal2(a, angles[at + i]);
        if (std::bit_cast<std::uint32_t>(first[i]) != std::bit_cast<std::uint32_t>(expected[0]) ||
            std::bit_cast<std::uint32_t>(second[i]) != std::bit_cast<std::uint32_t>(expected[1]))
          FAIL("radius " << a << " angle " << angles[at + i]);
      }
    }
  // Rounding is in doubt for some four of these.
  const std::int64_t n = 16'000'000;
  Tensor numbers = Tensor::empty({n});
  kernels({}).random_normal(3, 4, 0, 1, numbers);
  const float* x = numbers.data<float>();
  for (std::int64_t i = 0; i < n; i += 4) {
    const auto words = philox(3, 4, static_cast<std::uint64_t>(i / 4));
    const auto a = normal2(words[0], words[1]), b = normal2(words[2], words[3]);
    if (x[i] != a[0] || x[i + 1] != a[1] || x[i + 2] != b[0] || x[i + 3] != b[1]) FAIL("block " << i / 4);
  }
}

TEST_CASE("dropout keeps by position, scales what it keeps, and is its own derivative", "[kernels][random]") {
  for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16})
    for (MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
      const Tensor x = test::random({20, 5, 8, 7}, 3, dtype, format);
      const Tensor y = ops::dropout(x, 0.25, 7, 8);
      CHECK(y.memory_format() == format);
      Tensor expected = ops::empty_like(x);
      test::reference().dropout(7, 8, 0.25, x, expected);
      CHECK(test::differs(y, expected,
                          dtype == DType::bf16  ? 0x1p-7
                          : dtype == DType::f64 ? 1e-15
                                                : 1e-3) == "");
      const auto before = test::values(x), after = test::values(y);
      int dropped = 0;
      for (std::size_t i = 0; i < before.size(); ++i) {
        const bool keep = static_cast<double>(uniform_at(7, 8, i)) >= 0.25;
        if ((after[i] != 0) != (keep && before[i] != 0)) FAIL("element " << i);
        dropped += !keep;
      }
      // Five sigma of 5600 draws.
      CHECK(std::abs(dropped / static_cast<double>(before.size()) - 0.25) < 0.03);
    }
  const Tensor x = test::random({100}, 1);
  CHECK(test::differs_bitwise(ops::dropout(x, 0, 1, 1), x) == "");
  CHECK_THROWS_WITH(ops::dropout(x, 1, 1, 1), ContainsSubstring("dropout") && ContainsSubstring("got 1"));
}
