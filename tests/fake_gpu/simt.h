// SPDX-License-Identifier: MIT
// tests/fake_gpu/simt.h - CUDA's way of running a kernel, on a CPU, for tests without a GPU: the files of
// kernels/cuda/device are compiled as C++ with this header put in front (-x c++ -include), and each kernel becomes an
// ordinary function that is called once for every thread of the grid.
//
// A thread runs until it has to wait for others, at __syncthreads() or where a warp exchanges values; then the next one
// gets the CPU. So barriers and shuffles are waited at for real, a forgotten one gives wrong numbers, and what would
// hang or be undefined on a GPU ends the program with a message: a thread that leaves while others wait at a barrier,
// lanes that disagree about who takes part in an exchange, a write behind the end of dynamic shared memory.
// The blocks of a grid run one after another, in another order for each launch (FAKE_GPU_SEED shuffles them all); in
// every second block threads start from the last. What this cannot find: races that need two threads at the same
// instant. How: simt.cpp.
#pragma once

#include <cuda_runtime_api.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>

// CUDA's words. The toolkit's headers define them away for host compilers, but for these.
#undef __shared__
#undef __launch_bounds__
#define __shared__ static thread_local  // All threads of a block run on one thread of the host.
#define __launch_bounds__(...)

// Where a kernel finds itself.
inline thread_local uint3 threadIdx, blockIdx;
inline thread_local dim3 blockDim, gridDim;

namespace simt {

/// Queues `kernel(args...)` for every thread of `grid` x `block` on `stream`.
void enqueue(dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
             std::function<void()> kernel);

template <class... Params, class... Args>
void launch(void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
            Args... args) {
  // Parameters are copied at launch, as on a GPU, and every thread gets copies of its own.
  enqueue(grid, block, shared_bytes, stream,
          [kernel, params = std::tuple<Params...>(Params(args)...)] { std::apply(kernel, params); });
}

/// The block's dynamic shared memory: filled with nonsense at its start.
void* dynamic_shared();

/// All lanes of `mask` bring a value and may read those of the others: out[lane]. `what` is for messages.
const std::uint64_t* exchange(const char* what, unsigned mask, std::uint64_t value);
unsigned lane();

template <class T>
std::uint64_t to_bits(T value) {
  static_assert(sizeof(T) <= 8);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}
template <class T>
T from_bits(std::uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

/// What lane `source` of the own group of `width` lanes brought; the own value if it lies outside of the group.
template <class T>
T shuffle(const char* what, unsigned mask, T value, unsigned source, bool inside) {
  const std::uint64_t* values = exchange(what, mask, to_bits(value));
  return inside ? from_bits<T>(values[source]) : value;
}

}  // namespace simt

void __syncthreads();
inline void __syncwarp(unsigned mask = 0xffffffffu) { simt::exchange("__syncwarp", mask, 0); }
inline void __threadfence() {}
template <class T>
void __stwb(T* at, T value) {  // A store that is written back some time: any.
  *at = value;
}

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const unsigned group = simt::lane() & ~(static_cast<unsigned>(width) - 1);
  return simt::shuffle("__shfl_sync", mask, value, group + (static_cast<unsigned>(source) & (width - 1u)),
                       true);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {
  const unsigned source = simt::lane() ^ static_cast<unsigned>(lanes);
  const bool inside = source / static_cast<unsigned>(width) == simt::lane() / static_cast<unsigned>(width);
  return simt::shuffle("__shfl_xor_sync", mask, value, source, inside);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned lanes, int width = 32) {
  const unsigned source = simt::lane() + lanes;
  const bool inside = source / static_cast<unsigned>(width) == simt::lane() / static_cast<unsigned>(width);
  return simt::shuffle("__shfl_down_sync", mask, value, source, inside);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned lanes, int width = 32) {
  const bool inside = simt::lane() % static_cast<unsigned>(width) >= lanes;
  return simt::shuffle("__shfl_up_sync", mask, value, simt::lane() - lanes, inside);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  const std::uint64_t* values = simt::exchange("__ballot_sync", mask, predicate != 0 ? 1 : 0);
  unsigned bits = 0;
  for (unsigned l = 0; l < 32; ++l)
    if ((mask >> l & 1u) != 0 && values[l] != 0) bits |= 1u << l;
  return bits;
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0 ? 1 : 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) == mask ? 1 : 0; }
int __syncthreads_or(int predicate);

// Atomics return the old value. Streams are threads of the host, so these are atomic, too.
template <class T>
T atomicAdd(T* at, T value) {
  return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);
}
template <class T>
T atomicOr(T* at, T value) {
  return __atomic_fetch_or(at, value, __ATOMIC_SEQ_CST);
}
template <class T>
T atomicMin(T* at, T value) {
  T old = __atomic_load_n(at, __ATOMIC_SEQ_CST);
  while (value < old &&
         !__atomic_compare_exchange_n(at, &old, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return old;
}
