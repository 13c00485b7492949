// SPDX-License-Identifier: MIT
// dist/mpi/mpi_calls.cpp - see the header.
#include "dist/mpi/mpi_calls.h"

#include "dist/reduce_buffers.h"

namespace brigade::dist {
namespace {

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
