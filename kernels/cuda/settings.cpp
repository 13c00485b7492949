// SPDX-License-Identifier: MIT
// kernels/cuda/settings.cpp - see settings.h.
#include "kernels/cuda/settings.h"

#include <atomic>

namespace brigade::cuda {

namespace {

struct Settings {
  std::atomic<bool> tf32{false}, time_convolutions{false}, relu_in_epilogue{false};
};

Settings& settings() {
  static Settings the_settings;
  return the_settings;
}

}  // namespace

void set_allow_tf32(bool allow) { settings().tf32 = allow; }
bool allow_tf32() { return settings().tf32; }

void set_time_convolutions(bool on) { settings().time_convolutions = on; }
bool time_convolutions() { return settings().time_convolutions; }

void set_relu_in_epilogue(bool on) { settings().relu_in_epilogue = on; }
bool relu_in_epilogue() { return settings().relu_in_epilogue; }

}  // namespace brigade::cuda
