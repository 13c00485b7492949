// SPDX-License-Identifier: MIT
// apps/bench/ceilings.h - what this machine can do at best, measured in the same process and with the same threads as
// what is compared with it.
#pragma once

#include <map>

#include "core/dtype.h"

namespace brigade::apps {

/// f32 multiply-adds from registers into registers: no memory, no waiting. In GFLOP/s.
double fma_gflops();

/// The best of square matrix products, in GFLOP/s. For bf16 this is the ceiling that we have: the matrix units can do
/// more than any program gets from them.
double matmul_gflops(DType precision);

/// GB/s of reading plus writing when one array is copied into another, both arrays together as large as the operands of
/// what is compared: small ones stay in cache and are faster.
class CopyBandwidth {
 public:
  double gb_per_s(double bytes);

 private:
  std::map<int, double> by_log2_;  // Measured once a size.
};

}  // namespace brigade::apps
