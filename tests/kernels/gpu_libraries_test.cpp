// SPDX-License-Identifier: MIT
// tests/kernels/gpu_libraries_test.cpp - how cuBLASLt and cuDNN are asked: how often an algorithm is looked for, and
// what is said when they refuse. What they compute is tested with all kernels (matmul_test.cpp, conv_test.cpp). The
// emulated libraries (tests/fake_gpu) count searches; on a real GPU these cases are skipped.
#include <dlfcn.h>

#include <thread>

#include "kernels/cuda/cublas_lt.h"
#include "kernels/cuda/cudnn.h"
#include "kernels/cuda/settings.h"
#include "tests/kernels/compare.h"
#include "tests/support/skip.h"
#include "tests/support/test.h"

using namespace brigade;
using Catch::Matchers::Contains;

namespace {

constexpr Device kGpu{DeviceType::cuda, 0};
constexpr Window kWindow{.kernel = {3, 3}, .padding = {1, 1}};

// A counter of the emulated library `file`, which must have been loaded; nothing in the real one.
using Counter = int (*)();
Counter counter(const char* file, const char* name) {
  void* library = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);
  return library == nullptr ? nullptr : reinterpret_cast<Counter>(dlsym(library, name));
}

Tensor on_gpu(const Tensor& t) { return t.to(kGpu); }
Tensor on_cpu(const Tensor& t) { return t.to({}); }
Tensor random(const Shape& shape, std::uint64_t seed, DType dtype = DType::f32) {
  const bool image = shape.size() == 4;
  return on_gpu(
      test::random(shape, seed, dtype, image ? MemoryFormat::channels_last : MemoryFormat::contiguous));
}
Tensor weights(const Shape& shape, std::uint64_t seed) { return on_gpu(test::random(shape, seed)); }

// Why the cases below cannot run here; empty if they can.
std::string missing() {
  if (device_count(DeviceType::cuda) == 0) return "no CUDA device";
  // Both libraries are there from here on.
  static_cast<void>(ops::matmul(random({2, 2}, 1), random({2, 2}, 2)));
  const bool emulated = counter("libcublasLt.so.13", "cublasLt_fake_searches") != nullptr;
  return emulated ? "" : "searches are counted by the emulated libraries only";
}

int matmul_searches() { return counter("libcublasLt.so.13", "cublasLt_fake_searches")(); }
int conv_guesses() { return counter("libcudnn.so.9", "cudnn_fake_guesses")(); }
int conv_timings() { return counter("libcudnn.so.9", "cudnn_fake_timings")(); }

// All three passes with weights and data of `seed`.
void convolve(std::uint64_t seed, std::int64_t batch, DType dtype) {
  const Tensor x = random({batch, 8, 6, 6}, seed, dtype), w = weights({16, 8, 3, 3}, seed + 1),
               dy = random({batch, 16, 6, 6}, seed + 2, dtype);
  static_cast<void>(ops::conv2d(x, w, {}, kWindow));
  static_cast<void>(ops::conv2d_grad_input(dy, w, kWindow, x.shape()));
  Tensor dw = Tensor::empty(w.shape(), DType::f32, kGpu);
  ops::conv2d_grad_weight(dy, x, kWindow, dw);
}

// Puts a setting back, however the case ends.
struct Setting {
  void (*set)(bool);
  explicit Setting(void (*setter)(bool)) : set(setter) { set(true); }
  ~Setting() { set(false); }
};

}  // namespace

TEST_CASE("cuBLASLt is asked once for each kind of product, whatever it is made of", "[kernels][libraries]") {
  if (const std::string why = missing(); !why.empty()) return test::skip(why);
  const Tensor a = random({24, 40}, 1), b = random({40, 16}, 2);
  const Tensor first = ops::matmul(a, b);
  int before = matmul_searches();
  const auto asked = [&] { return matmul_searches() - std::exchange(before, matmul_searches()); };
  for (std::uint64_t seed = 3; seed < 6; ++seed)
    static_cast<void>(ops::matmul(random({24, 40}, seed), random({40, 16}, seed + 1)));
  CHECK(asked() == 0);
  static_cast<void>(ops::matmul(random({25, 40}, 1), b));  // Another size.
  CHECK(asked() == 1);
  static_cast<void>(ops::matmul(random({40, 24}, 1).transpose(0, 1), b));  // Another layout.
  CHECK(asked() == 1);
  {
    const Setting tf32(cuda::set_allow_tf32);  // Another kind of arithmetic.
    static_cast<void>(ops::matmul(a, b));
    CHECK(asked() == 1);
  }
  CHECK(test::differs_bitwise(on_cpu(ops::matmul(a, b)), on_cpu(first)) == "");
  CHECK(asked() == 0);
}

// Also on a real GPU.
TEST_CASE("a ReLU in cuBLASLt's epilogue equals the one behind the product", "[kernels][libraries]") {
  if (device_count(DeviceType::cuda) == 0) return test::skip("no CUDA device");
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64})
    for (const std::int64_t inner : {0, 40}) {
      CAPTURE(name(dtype), inner);
      const DType parameters = test::parameter_dtype(dtype);
      const Tensor x = random({24, inner}, 1, dtype), w = on_gpu(test::weights({16, inner}, 2, dtype));
      for (const Tensor& bias : {random({16}, 3, parameters), Tensor()}) {
        const Tensor behind = on_cpu(ops::linear(x, w, bias, Activation::relu));
        const Setting epilogue(cuda::set_relu_in_epilogue);
        const Tensor within = on_cpu(ops::linear(x, w, bias, Activation::relu));
        CHECK(test::far_from(within, behind, dtype == DType::f64 ? 1e-13 : 1e-5) == "");
      }
    }
}

TEST_CASE("a ReLU in the epilogue is another kind of product, and loses NaNs as NVIDIA's does",
          "[kernels][libraries]") {
  if (const std::string why = missing(); !why.empty()) return test::skip(why);
  Tensor x = random({7, 9}, 1);
  const Tensor w = random({5, 9}, 2), bias = random({5}, 3);
  Tensor one = x.slice(0, 2, 3).slice(1, 1, 2);
  ops::fill_(one, NAN);
  const auto nans = [&] {
    std::int64_t count = 0;
    for (const double value : test::values(on_cpu(ops::linear(x, w, bias, Activation::relu))))
      count += std::isnan(value);
    return count;
  };
  CHECK(nans() == 5);
  const int before = matmul_searches();
  const Setting epilogue(cuda::set_relu_in_epilogue);
  CHECK(nans() == 0);
  CHECK(matmul_searches() == before + 1);
}

TEST_CASE("each thread has its own handle and asks for itself", "[kernels][libraries]") {
  if (const std::string why = missing(); !why.empty()) return test::skip(why);
  const Tensor a = random({3, 11}, 1), b = random({11, 2}, 2);
  const Tensor here = on_cpu(ops::matmul(a, b));
  const int before = matmul_searches();
  runtime(kGpu).current_stream().synchronize();
  Tensor there;
  std::thread([&] { there = on_cpu(ops::matmul(a, b)); }).join();
  CHECK(matmul_searches() == before + 1);
  CHECK(test::differs_bitwise(here, there) == "");
}

TEST_CASE("cuDNN is asked once for each pass, shape and dtype", "[kernels][libraries]") {
  if (const std::string why = missing(); !why.empty()) return test::skip(why);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    CAPTURE(name(dtype));
    int before = conv_guesses();
    const auto asked = [&] { return conv_guesses() - std::exchange(before, conv_guesses()); };
    convolve(1, 3, dtype);
    CHECK(asked() == 3);
    convolve(4, 3, dtype);
    CHECK(asked() == 0);
    convolve(4, 5, dtype);
    CHECK(asked() == 3);
  }
}

TEST_CASE("timing cuDNN's algorithms happens once, and never on a tensor that is to be added to",
          "[kernels][libraries]") {
  if (const std::string why = missing(); !why.empty()) return test::skip(why);
  const Tensor dy = random({2, 16, 5, 5}, 1), w = weights({16, 8, 3, 3}, 2), old = random({2, 8, 5, 5}, 3);
  Tensor expected = on_cpu(old), dx = on_gpu(on_cpu(old));
  reference_kernels().conv2d_grad_input(on_cpu(dy), on_cpu(w), kWindow, 1, expected);
  const Setting timing(cuda::set_time_convolutions);
  const int before = conv_timings(), guesses = conv_guesses();
  ops::add_conv2d_grad_input(dy, w, kWindow, dx);
  CHECK(conv_timings() == before + 1);
  CHECK(test::far_from(on_cpu(dx), expected, 1e-5) == "");
  static_cast<void>(ops::conv2d_grad_input(dy, w, kWindow, dx.shape()));
  CHECK(conv_timings() == before + 1);
  CHECK(conv_guesses() == guesses);
}

TEST_CASE("what cuBLASLt and cuDNN refuse is said with their words and what it was",
          "[kernels][libraries][error]") {
  if (const std::string why = missing(); !why.empty()) return test::skip(why);
  const Tensor a = random({1, 4, 6}, 1), b = random({1, 6, 2}, 2);
  Tensor out = Tensor::empty({1, 4, 2}, DType::f16, kGpu);  // Not one of the dtypes beside f32.
  CHECK_THROWS_WITH(cuda::cublas_lt_matmul(a, b, {}, 0, out), Contains("cublasLtMatmulAlgoGetHeuristic") &&
                                                                  Contains("not supported") &&
                                                                  Contains("f32 [4, 6] x [6, 2] to f16"));
  const Tensor x = random({2, 8, 6, 6}, 1), y = random({2, 16, 7, 6}, 2), w = random({16, 8, 3, 3}, 3);
  const auto problem = cuda::conv_problem(cuda::ConvPass::forward, DType::f32, MemoryFormat::channels_last,
                                          x.shape(), w.shape(), y.shape(), kWindow);
  CHECK_THROWS_WITH(cuda::cudnn_convolve(problem, x, w, y, 0),
                    Contains("conv2d: cudnnGetConvolution") && Contains("CUDNN_STATUS_BAD_PARAM") &&
                        Contains("the output's size") && Contains("channels_last x [2, 8, 6, 6]"));
}
