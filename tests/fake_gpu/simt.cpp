// SPDX-License-Identifier: MIT
// tests/fake_gpu/simt.cpp - the threads of a block as fibers: functions with a stack of their own, which give up the
// CPU only where they wait. ucontext makes them; _setjmp and _longjmp, which leave the kernel of the operating system
// alone, go to and fro between them. A fiber runs one GPU thread after another for as long as none of them waits, so
// a kernel without barriers costs no switch at all; each thread that waits keeps its fiber, and a new one goes on.
#include "tests/fake_gpu/simt.h"

#include <setjmp.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "tests/fake_gpu/fake_gpu.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace simt {
namespace {

// A stack, as AddressSanitizer wants to be told of it when somebody jumps to another.
struct Stack {
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  void* frames = nullptr;  // Of functions that have not returned, where the sanitizer keeps them elsewhere.
};
#ifdef __SANITIZE_ADDRESS__
void leave(Stack& from, const Stack& to) {
  __sanitizer_start_switch_fiber(&from.frames, to.bottom, to.bytes);
}
void arrive(Stack& at) { __sanitizer_finish_switch_fiber(at.frames, nullptr, nullptr); }
void arrive_first(Stack& came_from) {
  __sanitizer_finish_switch_fiber(nullptr, &came_from.bottom, &came_from.bytes);
}
#else
void leave(Stack&, const Stack&) {}
void arrive(Stack&) {}
void arrive_first(Stack&) {}
#endif

constexpr std::size_t kStackBytes = 128 * 1024, kGuardBytes = 256;
constexpr unsigned char kNonsense = 0xcb;

struct Warp {
  unsigned mask = 0, arrived = 0,
           exited = 0;               // Of the exchange that is going on; lanes that have left the kernel.
  std::uint64_t done = 0;            // Exchanges so far.
  std::uint64_t values[2][32] = {};  // By turns: a late reader still finds those of the last exchange.
};

struct Fiber {
  ucontext_t context;  // Of its start.
  jmp_buf place;       // Where it stopped.
  bool begun = false;
  std::unique_ptr<unsigned char[]> memory = std::make_unique_for_overwrite<unsigned char[]>(kStackBytes);
  Stack stack{.bottom = memory.get(), .bytes = kStackBytes};
  unsigned thread = 0;
  const std::uint64_t* counter = nullptr;  // Waits until this is no longer `seen`.
  std::uint64_t seen = 0;
  const char* waits_at = "";
};

// One block at a time on each thread of the host.
class Block {
 public:
  void run(dim3 index, std::size_t shared_bytes, bool backwards, const std::function<void()>& kernel);
  void barrier(int predicate);
  const std::uint64_t* exchange(const char* what, unsigned mask, std::uint64_t value);
  unsigned thread() const { return current_->thread; }
  void* shared() { return shared_.data(); }
  bool any() const { return any_[(barriers_ - 1) & 1]; }

 private:
  static void main();
  bool take_thread();
  void wait(const char* what, const std::uint64_t& counter);
  void resume(Fiber& fiber);
  [[gnu::noinline]] void enter();
  [[gnu::noinline]] void stop();
  Fiber& idle_fiber();
  Fiber* runnable() const;
  [[noreturn]] void report(const std::string& what) const;

  const std::function<void()>* kernel_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  Fiber* current_ = nullptr;
  jmp_buf scheduler_;
  Stack scheduler_stack_;
  std::vector<Fiber*> idle_;
  std::vector<unsigned char> shared_;
  std::vector<Warp> warps_;
  unsigned threads_ = 0, started_ = 0, exited_ = 0, at_barrier_ = 0;
  bool backwards_ = false, any_[2] = {};
  std::uint64_t barriers_ = 0;
};

thread_local Block block;

void Block::report(const std::string& what) const {
  std::fprintf(stderr, "emulated GPU: %s; block (%u, %u, %u), thread (%u, %u, %u)\n", what.c_str(),
               blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
  std::abort();  // As an assert on a device ends its process.
}

void set_position(unsigned thread) {
  threadIdx = {thread % blockDim.x, thread / blockDim.x % blockDim.y, thread / blockDim.x / blockDim.y};
}

// Makes the next thread of the block the current fiber's.
bool Block::take_thread() {
  if (started_ == threads_) return false;
  current_->thread = backwards_ ? threads_ - 1 - started_ : started_;
  ++started_;
  set_position(current_->thread);
  return true;
}

// What a fiber does: one thread after another.
void Block::main() {
  arrive_first(block.scheduler_stack_);
  for (;;) {
    while (block.take_thread()) {
      (*block.kernel_)();
      if (block.at_barrier_ > 0) block.report("a thread leaves while others wait at a barrier");
      Warp& warp = block.warps_[block.thread() / 32];
      warp.exited |= 1u << lane();
      if ((warp.arrived != 0) && (warp.mask & warp.exited) != 0)
        block.report("a thread leaves while its warp waits for it to exchange values");
      ++block.exited_;
    }
    block.idle_.push_back(block.current_);
    block.stop();
  }
}

void Block::wait(const char* what, const std::uint64_t& counter) {
  Fiber& me = *current_;
  me.counter = &counter;
  me.seen = counter;
  me.waits_at = what;
  stop();
}

// Back to where run() called resume().
void Block::stop() {
  if (_setjmp(current_->place) == 0) {
    leave(current_->stack, scheduler_stack_);
    _longjmp(scheduler_, 1);
  }
  arrive(current_->stack);
}

void Block::resume(Fiber& fiber) {
  current_ = &fiber;
  if (fiber.counter != nullptr) set_position(fiber.thread);
  fiber.counter = nullptr;
  enter();
}

// A function without variables of its own, which a jump back into it could leave in doubt.
void Block::enter() {
  if (_setjmp(scheduler_) != 0) return arrive(scheduler_stack_);
  leave(scheduler_stack_, current_->stack);
  if (current_->begun) _longjmp(current_->place, 1);
  current_->begun = true;
  setcontext(&current_->context);
}

Fiber& Block::idle_fiber() {
  if (!idle_.empty()) {
    Fiber& fiber = *idle_.back();
    idle_.pop_back();
    return fiber;
  }
  fibers_.push_back(std::make_unique<Fiber>());
  getcontext(&fibers_.back()->context);  // It returns twice, too; only what members know is sure behind it.
  ucontext_t& context = fibers_.back()->context;
  context.uc_stack.ss_sp = fibers_.back()->memory.get();
  context.uc_stack.ss_size = kStackBytes;
  context.uc_link = nullptr;
  makecontext(&context, &Block::main, 0);
  return *fibers_.back();
}

// Always the first, or in a block that runs backwards the last, of those that need not wait: its warp runs as far ahead
// of the others as barriers let it, which is when one too few is felt.
Fiber* Block::runnable() const {
  const std::size_t count = fibers_.size();
  for (std::size_t i = 0; i < count; ++i) {
    Fiber* fiber = fibers_[backwards_ ? count - 1 - i : i].get();
    if (fiber->counter != nullptr && *fiber->counter != fiber->seen) return fiber;
  }
  return nullptr;
}

void Block::run(dim3 index, std::size_t shared_bytes, bool backwards, const std::function<void()>& kernel) {
  blockIdx = {index.x, index.y, index.z};
  kernel_ = &kernel;
  backwards_ = backwards;
  threads_ = blockDim.x * blockDim.y * blockDim.z;
  started_ = exited_ = at_barrier_ = 0;
  warps_.assign((threads_ + 31) / 32, {});
  if (threads_ % 32 != 0) warps_.back().exited = ~0u << threads_ % 32;
  shared_.assign(shared_bytes + kGuardBytes, kNonsense);

  while (exited_ < threads_) {
    if (started_ < threads_) {
      resume(idle_fiber());
      continue;
    }
    if (Fiber* fiber = runnable()) {
      resume(*fiber);
      continue;
    }
    for (const auto& fiber : fibers_)
      if (fiber->counter != nullptr) report(std::string("threads wait for ever at ") + fiber->waits_at);
  }
  for (std::size_t i = shared_bytes; i < shared_.size(); ++i)
    if (shared_[i] != kNonsense) report("a write behind the end of dynamic shared memory");
}

void Block::barrier(int predicate) {
  if (exited_ > 0) report("a barrier that some threads of the block have not reached: they have left");
  if (at_barrier_ == 0) any_[barriers_ & 1] = false;
  if (predicate != 0) any_[barriers_ & 1] = true;
  if (++at_barrier_ < threads_) return wait("__syncthreads", barriers_);
  at_barrier_ = 0;
  ++barriers_;
}

const std::uint64_t* Block::exchange(const char* what, unsigned mask, std::uint64_t value) {
  Warp& warp = warps_[thread() / 32];
  const unsigned bit = 1u << lane();
  if ((mask & bit) == 0) report(std::string(what) + ": the mask leaves out the lane that calls");
  if ((mask & warp.exited) != 0) report(std::string(what) + ": the mask names a lane that is not there");
  if (warp.arrived != 0 && warp.mask != mask)
    report(std::string(what) + ": lanes of a warp bring different masks");
  warp.mask = mask;
  warp.arrived |= bit;
  std::uint64_t* values = warp.values[warp.done & 1];
  values[lane()] = value;
  if (warp.arrived == mask) {
    warp.arrived = 0;
    ++warp.done;
  } else {
    wait(what, warp.done);
  }
  return values;
}

// Another order for each launch of a stream: i * step + first modulo the number of blocks, a permutation, as step has
// no divisor in common with it.
void run_grid(dim3 grid, dim3 threads, std::size_t shared_bytes, const std::function<void()>& kernel) {
  gridDim = grid;
  blockDim = threads;
  static thread_local std::uint64_t launches = 0;
  const char* text = std::getenv("FAKE_GPU_SEED");
  const std::uint64_t seed = (text != nullptr ? std::strtoull(text, nullptr, 10) : 0) + ++launches;
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
  std::uint64_t step = 1 + seed * 0x9e3779b97f4a7c15u % blocks;
  while (std::gcd(step, blocks) != 1) ++step;
  for (std::uint64_t i = 0; i < blocks; ++i) {
    const std::uint64_t at = (i * step + seed) % blocks;
    block.run(dim3(static_cast<unsigned>(at % grid.x), static_cast<unsigned>(at / grid.x % grid.y),
                   static_cast<unsigned>(at / grid.x / grid.y)),
              shared_bytes, (i + seed) % 2 == 1, kernel);
  }
}

}  // namespace

unsigned lane() { return block.thread() % 32; }
void* dynamic_shared() { return block.shared(); }
const std::uint64_t* exchange(const char* what, unsigned mask, std::uint64_t value) {
  return block.exchange(what, mask, value);
}

void enqueue(dim3 grid, dim3 threads, std::size_t shared_bytes, cudaStream_t stream,
             std::function<void()> kernel) {
  fake_gpu::enqueue(stream,
                    [=, kernel = std::move(kernel)] { run_grid(grid, threads, shared_bytes, kernel); });
}

}  // namespace simt

void __syncthreads() { simt::block.barrier(0); }
int __syncthreads_or(int predicate) {
  simt::block.barrier(predicate);
  return simt::block.any() ? 1 : 0;
}
