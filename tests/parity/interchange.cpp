// SPDX-License-Identifier: MIT
// tests/parity/interchange.cpp - our half of tests/parity/torch_interchange.py:
//   interchange train OUT.safetensors            the recipe's ten steps; writes the final state
//   interchange forward IN.safetensors OUT.safetensors   evaluates the recipe's first batch; writes "logits"
#include <cstdio>
#include <exception>
#include <string>

#include "autograd/no_grad.h"
#include "nn/state_dict.h"
#include "tests/parity/recipe.h"

namespace {

using namespace brigade;
namespace parity = brigade::test::parity;

void train(const std::string& out) {
  const auto model = parity::make_model();
  NamedTensors result = {{"losses", Tensor::from(parity::train(*model), {parity::kSteps})}};
  for (auto& entry : nn::state_dict(*model)) result.push_back(std::move(entry));
  save_safetensors(out, result);
}

void forward(const std::string& in, const std::string& out) {
  const auto model = parity::make_model();
  nn::load(*model, in);
  model->eval();
  const NoGrad no_grad;
  save_safetensors(out, {{"logits", (*model)(parity::batch(0).images).value()}});
}

}  // namespace

int main(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  try {
    if (command == "train" && argc == 3)
      train(argv[2]);
    else if (command == "forward" && argc == 4)
      forward(argv[2], argv[3]);
    else {
      std::fputs("usage: interchange train OUT | forward IN OUT\n", stderr);
      return 2;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
