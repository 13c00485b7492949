// SPDX-License-Identifier: MIT
// dist/mpi/mpi_calls.h - MPI's error codes as CommError, waiting without burning a core, and our types and operations
// in MPI's terms.
#pragma once

#include <mpi.h>

#include <span>
#include <string>

#include "dist/transport.h"

namespace brigade::dist {

/// Throws CommError with MPI's own text unless `code` is MPI_SUCCESS:
/// `check_mpi(MPI_Barrier(c), "MPI_Barrier")`.
void check_mpi(int code, const char* call);

/// "Open MPI 4.1.4", "MPICH 4.0.2": the headers that this was compiled with.
std::string compiled_mpi();
/// What the library says of itself; may be called before MPI starts.
std::string loaded_mpi();

/// "this MPI is CUDA-aware", or "… is not …", or that it does not say so: asked, not assumed, and used for nothing.
/// Empty where MPI does not run.
std::string mpi_cuda_support();

/// Waits for all of `requests` and sleeps most of that time. MPI's own waits spin, and even with yielding they take
/// half of a core that computes; but MPI moves bytes only inside calls, so sleeping for long would stop a transfer.
/// `call` is what the requests come from, for the error.
void wait_asleep(std::span<MPI_Request> requests, const char* call);

/// The MPI type with the same bits. 16-bit floats travel as MPI_UINT16_T and are never reduced as such.
MPI_Datatype mpi_type(DType dtype);

/// MPI operations that run dist/reduce_buffers, so that bool, NaN and wrap-around mean the same as on every
/// other backend. Made after MPI_Init; MPI_Finalize frees them.
class MpiOps {
 public:
  MpiOps();
  MPI_Op operator[](Reduce op) const { return ops_[static_cast<std::size_t>(op)]; }

 private:
  std::array<MPI_Op, kAllReduces.size()> ops_;
};

}  // namespace brigade::dist
