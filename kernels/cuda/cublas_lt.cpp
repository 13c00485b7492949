// SPDX-License-Identifier: MIT
// kernels/cuda/cublas_lt.cpp - see cublas_lt.h: loading the library, one plan a problem, running it.
#include "kernels/cuda/cublas_lt.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <map>
#include <memory>

#include "core/cuda/stream_cuda.h"
#include "kernels/cuda/gemm_problem.h"
#include "kernels/cuda/settings.h"
#include "kernels/cuda/workspace.h"

namespace brigade::cuda {

namespace {

// NVIDIA advises this much on Hopper; smaller devices lose nothing, as an algorithm takes only what it needs.
constexpr std::uint64_t kMaxWorkspaceBytes = 32 << 20;

// The functions that we call, found by name in the library of the version that the header has.
class Library {
 public:
  static const Library& get() {
    static const Library the_library;  // Thread-safe; tried again if it throws.
    return the_library;
  }

  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtGetStatusString) status_text;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmul) matmul;

 private:
  Library() {
    const std::string file = str("libcublasLt.so.", CUBLAS_VER_MAJOR);
    void* library =
        dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);  // Never closed: it keeps state in the driver.
    if (library == nullptr)
      fail(str("matmul: needs cuBLAS ", CUBLAS_VER_MAJOR, " on a GPU, which could not be loaded: ", dlerror(),
               "; put the folder of ", file, " into LD_LIBRARY_PATH"));
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      BRIGADE_CHECK(function != nullptr, "matmul: ", file, " has no ", name, "; it is not the cuBLAS ",
                    CUBLAS_VER_MAJOR, ".", CUBLAS_VER_MINOR, " that this program was built for");
    };
    find(create, "cublasLtCreate");
    find(destroy, "cublasLtDestroy");
    find(status_text, "cublasLtGetStatusString");
    find(desc_create, "cublasLtMatmulDescCreate");
    find(desc_destroy, "cublasLtMatmulDescDestroy");
    find(desc_set, "cublasLtMatmulDescSetAttribute");
    find(layout_create, "cublasLtMatrixLayoutCreate");
    find(layout_destroy, "cublasLtMatrixLayoutDestroy");
    find(layout_set, "cublasLtMatrixLayoutSetAttribute");
    find(preference_create, "cublasLtMatmulPreferenceCreate");
    find(preference_destroy, "cublasLtMatmulPreferenceDestroy");
    find(preference_set, "cublasLtMatmulPreferenceSetAttribute");
    find(heuristic, "cublasLtMatmulAlgoGetHeuristic");
    find(matmul, "cublasLtMatmul");
  }
};

void check(cublasStatus_t status, const char* call, const GemmProblem& p) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail(str("matmul: ", call, " failed: ", Library::get().status_text(status), " (", static_cast<int>(status),
           "); it was ", p));
}

template <class T>
using Handle = std::unique_ptr<std::remove_pointer_t<T>, cublasStatus_t (*)(T)>;

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return CUDA_R_32F;
    case DType::f64:
      return CUDA_R_64F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f16:
      return CUDA_R_16F;
    default:
      fail(str("matmul: needs a floating dtype; got ", dtype));
  }
}

cublasComputeType_t compute_type(const GemmProblem& p) {
  if (p.a.dtype == DType::f64) return CUBLAS_COMPUTE_64F;
  return p.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

Handle<cublasLtMatrixLayout_t> make_layout(const GemmMatrix& m, const GemmProblem& p) {
  const Library& lt = Library::get();
  cublasLtMatrixLayout_t layout = nullptr;
  check(lt.layout_create(&layout, data_type(m.dtype), static_cast<std::uint64_t>(m.rows),
                         static_cast<std::uint64_t>(m.cols), m.ld),
        "cublasLtMatrixLayoutCreate", p);
  Handle<cublasLtMatrixLayout_t> owner(layout, lt.layout_destroy);
  const auto set = [&](cublasLtMatrixLayoutAttribute_t attribute, const auto& value) {
    check(lt.layout_set(layout, attribute, &value, sizeof value), "cublasLtMatrixLayoutSetAttribute", p);
  };
  set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(p.batch));
  set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, m.batch_stride);
  return owner;
}

// A problem's descriptors and the algorithm that was found for it.
class Plan {
 public:
  Plan(cublasLtHandle_t handle, const GemmProblem& p, const void* bias)
      : problem_(p),
        a_(make_layout(p.a, p)),
        b_(make_layout(p.b, p)),
        d_(make_layout(p.d, p)),
        desc_(make_desc(p)) {
    if (p.bias_alignment != 0) set_bias(bias);  // The search looks at its alignment.
    find_algorithm(handle);
  }

  void run(cublasLtHandle_t handle, const void* a, const void* b, const void* bias, void* d, void* workspace,
           cudaStream_t stream) const {
    if (problem_.bias_alignment != 0) set_bias(bias);
    // The factors are read during the call.
    const double one = 1, beta = problem_.adds ? 1 : 0;
    const auto one_f32 = static_cast<float>(one), beta_f32 = static_cast<float>(beta);
    const bool f64 = problem_.a.dtype == DType::f64;
    const void *alpha_at = f64 ? static_cast<const void*>(&one) : &one_f32,
               *beta_at = f64 ? static_cast<const void*>(&beta) : &beta_f32;
    check(Library::get().matmul(handle, desc_.get(), alpha_at, a, a_.get(), b, b_.get(), beta_at, d, d_.get(),
                                d, d_.get(), &algorithm_, workspace, workspace_bytes_, stream),
          "cublasLtMatmul", problem_);
  }

  std::int64_t workspace_bytes() const { return static_cast<std::int64_t>(workspace_bytes_); }

 private:
  static Handle<cublasLtMatmulDesc_t> make_desc(const GemmProblem& p) {
    const Library& lt = Library::get();
    cublasLtMatmulDesc_t desc = nullptr;
    check(lt.desc_create(&desc, compute_type(p), p.a.dtype == DType::f64 ? CUDA_R_64F : CUDA_R_32F),
          "cublasLtMatmulDescCreate", p);
    Handle<cublasLtMatmulDesc_t> owner(desc, lt.desc_destroy);
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, std::int32_t value) {
      check(lt.desc_set(desc, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute", p);
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, p.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, p.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    const bool biased = p.bias_alignment != 0;
    if (biased) set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(p.d.dtype));
    if (p.relu)
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, biased ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU);
    else if (biased)
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    return owner;
  }

  // Plans belong to one thread, so that the pointer in the descriptor is that of the call under way.
  void set_bias(const void* bias) const {
    check(Library::get().desc_set(desc_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias),
          "cublasLtMatmulDescSetAttribute", problem_);
  }

  void find_algorithm(cublasLtHandle_t handle) {
    const Library& lt = Library::get();
    cublasLtMatmulPreference_t preference = nullptr;
    check(lt.preference_create(&preference), "cublasLtMatmulPreferenceCreate", problem_);
    const Handle<cublasLtMatmulPreference_t> owner(preference, lt.preference_destroy);
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      check(lt.preference_set(preference, attribute, &value, sizeof value),
            "cublasLtMatmulPreferenceSetAttribute", problem_);
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMaxWorkspaceBytes);
    // Partial sums of a split inner dim are added in f32, never in a 16-bit output.
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    const auto alignment = [](const GemmMatrix& m) { return static_cast<std::uint32_t>(m.alignment); };
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(problem_.a));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(problem_.b));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(problem_.d));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(problem_.d));

    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    check(lt.heuristic(handle, desc_.get(), a_.get(), b_.get(), d_.get(), d_.get(), preference, 1, &found,
                       &count),
          "cublasLtMatmulAlgoGetHeuristic", problem_);
    BRIGADE_CHECK(count > 0, "matmul: cuBLASLt has no algorithm for ", problem_);
    check(found.state, "cublasLtMatmulAlgoGetHeuristic", problem_);
    algorithm_ = found.algo;
    workspace_bytes_ = found.workspaceSize;
  }

  GemmProblem problem_;
  Handle<cublasLtMatrixLayout_t> a_, b_, d_;
  Handle<cublasLtMatmulDesc_t> desc_;
  cublasLtMatmulAlgo_t algorithm_{};
  std::size_t workspace_bytes_ = 0;
};

// The calling thread's handle and plans on one device.
class Context {
 public:
  // The device is the current one: its current_stream() has been asked for.
  static Context& of_this_thread(Device device) {
    thread_local std::map<int, Context> contexts;
    return contexts[device.index];
  }

  Context() {
    cublasLtHandle_t handle = nullptr;
    check(Library::get().create(&handle), "cublasLtCreate", {});
    handle_ = {handle, Library::get().destroy};
  }

  const Plan& plan(const GemmProblem& problem, const void* bias) {
    const auto known = plans_.find(problem);
    if (known != plans_.end()) return known->second;
    return plans_.try_emplace(problem, handle_.get(), problem, bias).first->second;
  }

  cublasLtHandle_t handle() const { return handle_.get(); }

 private:
  Handle<cublasLtHandle_t> handle_{nullptr, nullptr};
  std::map<GemmProblem, Plan> plans_;
};

}  // namespace

void cublas_lt_matmul(const Tensor& a, const Tensor& b, const GemmEpilogue& then, double beta, Tensor& out) {
  const Device device = out.device();
  const cudaStream_t stream = current_cuda_stream(device);
  GemmProblem problem = gemm_problem(a, b, then.bias, beta, out);
  problem.relu = then.relu;
  problem.tf32 = a.dtype() == DType::f32 && allow_tf32();
  Context& context = Context::of_this_thread(device);
  const void* bias_at = then.bias.defined() ? then.bias.raw() : nullptr;
  const Plan& plan = context.plan(problem, bias_at);
  const Workspace workspace(device, plan.workspace_bytes());
  plan.run(context.handle(), b.raw(), a.raw(), bias_at, out.raw(), workspace.data(), stream);
}

}  // namespace brigade::cuda
