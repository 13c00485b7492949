// SPDX-License-Identifier: MIT
// dist/hooks/none.cpp - gradients travel as they are. Read before: dist/comm_hook.h.
#include "dist/hooks/hooks.h"
#include "dist/scale.h"

namespace brigade::dist {
namespace {

class None final : public CommHook {
 public:
  explicit None(Divide divide) : divide_(divide) {}

  HookReport mean(HookBucket& bucket, Transport& transport) override {
    // The mean over one rank is the gradient itself.
    if (transport.size() == 1) return {.wire_bytes = bucket.gradients.bytes()};
    const DivideFactors factors = divide_factors(divide_, transport.size());
    if (factors.before == 1) {
      transport.all_reduce(bucket.gradients,
                           Reduce::mean);  // Divides in the accumulator, before it is rounded.
    } else {
      scale(bucket.gradients, factors.before);
      transport.all_reduce(bucket.gradients, Reduce::sum);
      scale(bucket.gradients, factors.after);
    }
    return {.wire_bytes = bucket.gradients.bytes()};
  }

 private:
  Divide divide_;
};

}  // namespace

std::unique_ptr<CommHook> make_none(const optim::FlatParameters&, const HookOptions& options) {
  return std::make_unique<None>(options.divide);
}

}  // namespace brigade::dist
