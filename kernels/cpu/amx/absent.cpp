// SPDX-License-Identifier: MIT
// kernels/cpu/amx/absent.cpp - stands for this folder where the compiler does not know AMX.
#include "core/check.h"
#include "kernels/cpu/amx/amx.h"

namespace brigade::cpu::amx {

namespace {
[[noreturn]] void absent() { fail("amx: not compiled in"); }
}  // namespace

bool available() { return false; }

namespace images {
void conv2d(const Tensor&, const Tensor&, const Tensor&, const Window&, Tensor&) { absent(); }
void conv2d_with_moments(const Tensor&, const Tensor&, const Tensor&, const Window&, Tensor&,
                         ChannelMoments&) {
  absent();
}
void conv2d_grad_input(const Tensor&, const Tensor&, const Window&, Tensor&) { absent(); }
void add_conv2d_grad_input(const Tensor&, const Tensor&, const Window&, Tensor&) { absent(); }
void conv2d_grad_weight(const Tensor&, const Tensor&, const Window&, Tensor&) { absent(); }
}  // namespace images

namespace pixels {
void conv2d(const Tensor&, const Tensor&, const Tensor&, const Window&, Tensor&) { absent(); }
void conv2d_with_moments(const Tensor&, const Tensor&, const Tensor&, const Window&, Tensor&,
                         ChannelMoments&) {
  absent();
}
void conv2d_grad_input(const Tensor&, const Tensor&, const Window&, Tensor&) { absent(); }
void add_conv2d_grad_input(const Tensor&, const Tensor&, const Window&, Tensor&) { absent(); }
}  // namespace pixels

}  // namespace brigade::cpu::amx
