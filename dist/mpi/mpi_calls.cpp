// SPDX-License-Identifier: MIT
// dist/mpi/mpi_calls.cpp - see the header.
#include "dist/mpi/mpi_calls.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/stream.h"
#include "dist/reduce_buffers.h"

namespace brigade::dist {
namespace {

// What comes within kSpin is not worth a sleep, only a yield to ranks that share the core. Then each sleep is an eighth
// of the time waited so far, so that it makes a wait that much longer at most; kLongest is what a socket's buffer
// bridges at 10 Gbit/s without running dry. Measured with two_hosts.sh, all_reduce of 42.6 MiB at 1 Gbit/s in 376 ms,
// processor time of a rank: 375 ms spinning, 60 ms with sleeps of up to 200 us, 40 ms with up to 500.
constexpr std::chrono::microseconds kSpin{60}, kShortest{20}, kLongest{500};

DType dtype_of_mpi(MPI_Datatype type) {
  for (const DType dtype : kAllDTypes)
    if (mpi_type(dtype) == type) return dtype;
  return DType::u8;  // Not reached: transports reduce with the types of mpi_type() only.
}

// MPI calls this with in = the operand before `inout`, from C: nothing may be thrown.
template <Reduce op>
void reduce_in_mpi(void* in, void* inout, int* count, MPI_Datatype* type) {
  accumulate(static_cast<std::byte*>(inout), static_cast<const std::byte*>(in), dtype_of_mpi(*type), *count,
             op);
}

template <Reduce op>
MPI_Op make_op() {
  MPI_Op made = MPI_OP_NULL;
  check_mpi(MPI_Op_create(&reduce_in_mpi<op>, /*commute=*/1, &made), "MPI_Op_create");
  return made;
}

}  // namespace

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw CommError(str(call, ": ", std::string_view(text, static_cast<std::size_t>(length))));
}

std::string compiled_mpi() {
#if defined(OMPI_MAJOR_VERSION)
  return str("Open MPI ", OMPI_MAJOR_VERSION, ".", OMPI_MINOR_VERSION, ".", OMPI_RELEASE_VERSION);
#elif defined(MPICH_VERSION)
  return str("MPICH ", MPICH_VERSION);
#else
  return str("MPI ", MPI_VERSION, ".", MPI_SUBVERSION);
#endif
}

std::string loaded_mpi() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  check_mpi(MPI_Get_library_version(text, &length), "MPI_Get_library_version");
  return std::string(text, static_cast<std::size_t>(length));
}

void wait_asleep(std::span<MPI_Request> requests, const char* call) {
  const auto begin = Clock::now();
  while (true) {
    int done = 0;
    check_mpi(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
              call);
    if (done != 0) return;
    const auto waited = Clock::now() - begin;
    if (waited < kSpin)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::clamp<Clock::duration>(waited / 8, kShortest, kLongest));
  }
}

std::string mpi_cuda_support() {
  int started = 0, finished = 0;
  MPI_Initialized(&started);
  MPI_Finalized(&finished);
  if (started == 0 || finished != 0) return "";
  // An extension, whose header not every MPI has: the library that is loaded is asked whether it knows the question.
  auto* const query = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support"));
  if (query == nullptr) return "this MPI does not say whether it is CUDA-aware, and need not be";
  return query() != 0 ? "this MPI is CUDA-aware, of which no use is made"
                      : "this MPI is not CUDA-aware, and need not be";
}

MPI_Datatype mpi_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return MPI_FLOAT;
    case DType::f64:
      return MPI_DOUBLE;
    case DType::bf16:
    case DType::f16:
      return MPI_UINT16_T;
    case DType::i32:
      return MPI_INT32_T;
    case DType::i64:
      return MPI_INT64_T;
    case DType::u8:
      return MPI_UINT8_T;
    case DType::i8:
      return MPI_INT8_T;
    case DType::boolean:
      return MPI_C_BOOL;
  }
  fail("mpi_type: not a dtype");
}

MpiOps::MpiOps()
    : ops_{make_op<Reduce::sum>(), make_op<Reduce::mean>(), make_op<Reduce::min>(), make_op<Reduce::max>(),
           make_op<Reduce::prod>()} {}

}  // namespace brigade::dist
