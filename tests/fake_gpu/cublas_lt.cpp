// SPDX-License-Identifier: MIT
// tests/fake_gpu/cublas_lt.cpp - libcublasLt.so.13 of the emulated GPU: the functions that the product calls. What
// NVIDIA's documentation of cublasLtMatmul() refuses (dtypes, leading dimensions, alignment, workspace) it refuses, and
// what it gives is a plain loop over column-major matrices, run on the emulated stream.
#include <cublasLt.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "tests/fake_gpu/fake_gpu.h"
#include "tests/fake_gpu/numbers.h"

// cuBLASLt's own opaque types are arrays: ours stand behind the same pointers.
namespace {

using fake_gpu::DType;

struct Layout {
  cudaDataType_t type;
  std::uint64_t rows, cols;
  std::int64_t ld;
  std::int32_t batch = 1;
  std::int64_t batch_stride = 0;
};

struct Desc {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  std::int32_t trans_a = CUBLAS_OP_N, trans_b = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  std::int32_t bias_type = -1;  // -1: D's.
};

struct Preference {
  std::uint64_t workspace = 0;
  std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t align[4] = {256, 256, 256, 256};  // A, B, C, D
};

// What an algorithm remembers in the words of cublasLtMatmulAlgo_t.
struct Algorithm {
  std::uint64_t magic, rows, cols, inner, workspace;
  std::uint16_t align[4];
  std::uint64_t kind;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));
constexpr std::uint64_t kMagic = 0x62726967616465;

std::atomic<int> searches{0};

const Layout* layout(cublasLtMatrixLayout_t l) { return reinterpret_cast<const Layout*>(l); }

DType dtype(cudaDataType_t type) {
  switch (type) {
    case CUDA_R_64F:
      return DType::f64;
    case CUDA_R_16BF:
      return DType::bf16;
    case CUDA_R_16F:
      return DType::f16;
    default:
      return DType::f32;
  }
}

bool is_supported(const Desc& desc, cudaDataType_t ab, cudaDataType_t cd) {
  switch (desc.compute) {
    case CUBLAS_COMPUTE_64F:
      return desc.scale == CUDA_R_64F && ab == CUDA_R_64F && cd == CUDA_R_64F;
    case CUBLAS_COMPUTE_32F_FAST_TF32:
      return desc.scale == CUDA_R_32F && ab == CUDA_R_32F && cd == CUDA_R_32F;
    case CUBLAS_COMPUTE_32F:
      if (desc.scale != CUDA_R_32F) return false;
      if (ab == CUDA_R_32F) return cd == CUDA_R_32F;
      return (ab == CUDA_R_16BF || ab == CUDA_R_16F) && (cd == ab || cd == CUDA_R_32F);
    default:
      return false;
  }
}

bool is_sound(const Layout& l) {
  const auto size = static_cast<std::int64_t>(l.cols) * l.ld;
  return l.rows > 0 && l.cols > 0 && l.ld >= static_cast<std::int64_t>(l.rows) && l.batch > 0 &&
         (l.batch == 1 || l.batch_stride >= 0) && size > 0;
}

// Sizes, dtypes and the epilogue: what a search and a product refuse alike.
cublasStatus_t check(const Desc& desc, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
  for (const Layout* l : {&a, &b, &c, &d})
    if (!is_sound(*l) || l->batch != d.batch) return CUBLAS_STATUS_INVALID_VALUE;
  const std::uint64_t m = desc.trans_a == CUBLAS_OP_N ? a.rows : a.cols;
  const std::uint64_t k = desc.trans_a == CUBLAS_OP_N ? a.cols : a.rows;
  const std::uint64_t n = desc.trans_b == CUBLAS_OP_N ? b.cols : b.rows;
  const std::uint64_t k_of_b = desc.trans_b == CUBLAS_OP_N ? b.rows : b.cols;
  if (k != k_of_b || d.rows != m || d.cols != n || c.rows != m || c.cols != n)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (c.ld != d.ld || c.type != d.type || c.batch_stride != d.batch_stride)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  // The matrices of a written batch must not overlap. Ones that interleave rows do not, so only these two are sure.
  if (d.batch > 1 && d.batch_stride < static_cast<std::int64_t>(d.rows)) return CUBLAS_STATUS_INVALID_VALUE;
  if (a.type != b.type || !is_supported(desc, a.type, d.type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (desc.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_SUCCESS;
  if (desc.epilogue == CUBLASLT_EPILOGUE_RELU) return CUBLAS_STATUS_SUCCESS;
  if ((desc.epilogue != CUBLASLT_EPILOGUE_BIAS && desc.epilogue != CUBLASLT_EPILOGUE_RELU_BIAS) ||
      desc.bias == nullptr)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (desc.bias_type != -1 && desc.bias_type != static_cast<std::int32_t>(d.type))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  return fake_gpu::is_aligned(desc.bias, 16) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

// The dtypes and the epilogue, for which an algorithm is chosen.
std::uint64_t kind(const Desc& desc, const Layout& a, const Layout& d) {
  return static_cast<std::uint64_t>(desc.epilogue) << 48 | static_cast<std::uint64_t>(desc.compute) << 32 |
         static_cast<std::uint64_t>(a.type) << 16 | static_cast<std::uint64_t>(d.type);
}

std::uint64_t inner(const Desc& desc, const Layout& a) {
  return desc.trans_a == CUBLAS_OP_N ? a.cols : a.rows;
}

// op(matrix) or its transpose as dense rows of `k` numbers: those of A by row, those of B by column.
std::vector<double> rows_of(const void* at, const Layout& l, std::int64_t first, bool by_column) {
  const auto rows = static_cast<std::int64_t>(l.rows), cols = static_cast<std::int64_t>(l.cols);
  const std::int64_t outer = by_column ? cols : rows, deep = by_column ? rows : cols;
  std::vector<double> dense(static_cast<std::size_t>(outer * deep));
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t i = 0; i < deep; ++i)
      dense[static_cast<std::size_t>(o * deep + i)] =
          fake_gpu::load(at, dtype(l.type), first + (by_column ? i + o * l.ld : o + i * l.ld));
  return dense;
}

void multiply(const Desc& desc, double alpha, const void* a, const Layout& al, const void* b,
              const Layout& bl, double beta, void* d, const Layout& dl) {
  const auto k = static_cast<std::int64_t>(inner(desc, al));
  for (std::int64_t batch = 0; batch < dl.batch; ++batch) {
    const auto left = rows_of(a, al, batch * al.batch_stride, desc.trans_a != CUBLAS_OP_N);
    const auto right = rows_of(b, bl, batch * bl.batch_stride, desc.trans_b == CUBLAS_OP_N);
    for (std::int64_t c = 0; c < static_cast<std::int64_t>(dl.cols); ++c)
      for (std::int64_t r = 0; r < static_cast<std::int64_t>(dl.rows); ++r) {
        double sum = 0;
        for (std::int64_t i = 0; i < k; ++i)
          sum += left[static_cast<std::size_t>(r * k + i)] * right[static_cast<std::size_t>(c * k + i)];
        const std::int64_t at = batch * dl.batch_stride + r + c * dl.ld;
        sum = alpha * sum + (beta == 0 ? 0 : beta * fake_gpu::load(d, dtype(dl.type), at));
        if ((desc.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0)
          sum += fake_gpu::load(desc.bias, dtype(dl.type), r);
        // As NVIDIA's: a NaN becomes 0.
        if ((desc.epilogue & CUBLASLT_EPILOGUE_RELU) != 0) sum = sum > 0 ? sum : 0;
        fake_gpu::store(d, dtype(dl.type), at, sum);
      }
  }
}

// Sets a field from an attribute's bytes, as the real ones do: the size must be the type's.
template <class T>
cublasStatus_t set(T& field, const void* from, std::size_t bytes) {
  if (bytes != sizeof(T) || from == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&field, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

/// For tests: how often an algorithm was looked for in this process.
int cublasLt_fake_searches() { return searches; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(new int(0));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete reinterpret_cast<int*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "success";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "the functionality requested is not supported";
    default:
      return "an error of the emulated library";
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* out, cudaDataType type, std::uint64_t rows,
                                          std::uint64_t cols, std::int64_t ld) {
  *out = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, cols, ld});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
  delete reinterpret_cast<Layout*>(l);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* from,
                                                std::size_t bytes) {
  auto& to = *reinterpret_cast<Layout*>(l);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) return set(to.batch, from, bytes);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) return set(to.batch_stride, from, bytes);
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* out, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *out = reinterpret_cast<cublasLtMatmulDesc_t>(new Desc{compute, scale});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete reinterpret_cast<Desc*>(desc);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute, const void* from,
                                              std::size_t bytes) {
  auto& to = *reinterpret_cast<Desc*>(desc);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(to.trans_a, from, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set(to.trans_b, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return set(to.epilogue, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return set(to.bias, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return set(to.bias_type, from, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* out) {
  *out = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete reinterpret_cast<Preference*>(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* from, std::size_t bytes) {
  auto& to = *reinterpret_cast<Preference*>(preference);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return set(to.workspace, from, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return set(to.reductions, from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return set(to.align[0], from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return set(to.align[1], from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return set(to.align[2], from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return set(to.align[3], from, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t* results, int* count) {
  ++searches;
  *count = 0;
  if (requested < 1) return CUBLAS_STATUS_INVALID_VALUE;
  const auto& the_desc = *reinterpret_cast<const Desc*>(desc);
  const auto& wishes = *reinterpret_cast<const Preference*>(preference);
  if (const auto status = check(the_desc, *layout(a), *layout(b), *layout(c), *layout(d));
      status != CUBLAS_STATUS_SUCCESS)
    return status;
  Algorithm algorithm{.magic = kMagic,
                      .rows = layout(d)->rows,
                      .cols = layout(d)->cols,
                      .inner = inner(the_desc, *layout(a)),
                      .workspace = 0,
                      .align = {},
                      .kind = kind(the_desc, *layout(a), *layout(d))};
  // A deep product is split where scratch memory is allowed.
  if (algorithm.inner >= 32) algorithm.workspace = std::min<std::uint64_t>(wishes.workspace, 4096);
  for (int i = 0; i < 4; ++i) algorithm.align[i] = static_cast<std::uint16_t>(wishes.align[i]);
  results[0] = {};
  std::memcpy(&results[0].algo, &algorithm, sizeof algorithm);
  results[0].workspaceSize = algorithm.workspace;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t al, const void* b, cublasLtMatrixLayout_t bl,
                              const void* beta, const void* c, cublasLtMatrixLayout_t cl, void* d,
                              cublasLtMatrixLayout_t dl, const cublasLtMatmulAlgo_t* algo, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  const Desc the_desc = *reinterpret_cast<const Desc*>(desc);
  const Layout a_layout = *layout(al), b_layout = *layout(bl), d_layout = *layout(dl);
  if (const auto status = check(the_desc, a_layout, b_layout, *layout(cl), d_layout);
      status != CUBLAS_STATUS_SUCCESS)
    return status;
  Algorithm algorithm;
  if (algo == nullptr || c != d) return CUBLAS_STATUS_NOT_SUPPORTED;
  std::memcpy(&algorithm, algo, sizeof algorithm);
  const bool found_for_this =
      algorithm.magic == kMagic && algorithm.rows == d_layout.rows && algorithm.cols == d_layout.cols &&
      algorithm.inner == inner(the_desc, a_layout) && algorithm.kind == kind(the_desc, a_layout, d_layout);
  const bool aligned = fake_gpu::is_aligned(a, algorithm.align[0]) &&
                       fake_gpu::is_aligned(b, algorithm.align[1]) &&
                       fake_gpu::is_aligned(d, std::max(algorithm.align[2], algorithm.align[3]));
  const bool room = workspace_bytes >= algorithm.workspace && fake_gpu::is_aligned(workspace, 256) &&
                    (algorithm.workspace == 0 || workspace != nullptr);
  if (!found_for_this || !aligned || !room) return CUBLAS_STATUS_INVALID_VALUE;
  const bool f64 = the_desc.scale == CUDA_R_64F;
  fake_gpu::enqueue(stream, [=, used = algorithm.workspace, alpha_value = fake_gpu::factor(alpha, f64),
                             beta_value = fake_gpu::factor(beta, f64)] {
    if (used > 0) std::memset(workspace, 0xff, used);  // Whoever shares it notices.
    multiply(the_desc, alpha_value, a, a_layout, b, b_layout, beta_value, d, d_layout);
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
