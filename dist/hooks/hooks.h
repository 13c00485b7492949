// SPDX-License-Identifier: MIT
// dist/hooks/hooks.h - the makers behind the name table, and what several hooks need. Private to dist/hooks.
#pragma once

#include "dist/comm_hook.h"

namespace brigade::dist {

std::unique_ptr<CommHook> make_none(const optim::FlatParameters& parameters, const HookOptions& options);
std::unique_ptr<CommHook> make_bf16(const optim::FlatParameters& parameters, const HookOptions& options);
std::unique_ptr<CommHook> make_f16(const optim::FlatParameters& parameters, const HookOptions& options);
std::unique_ptr<CommHook> make_int8(const optim::FlatParameters& parameters, const HookOptions& options);
std::unique_ptr<CommHook> make_sign(const optim::FlatParameters& parameters, const HookOptions& options);
std::unique_ptr<CommHook> make_topk(const optim::FlatParameters& parameters, const HookOptions& options);
std::unique_ptr<CommHook> make_powersgd(const optim::FlatParameters& parameters, const HookOptions& options);
std::unique_ptr<CommHook> make_sign_dropout(const optim::FlatParameters& parameters,
                                            const HookOptions& options);

/// What to multiply by before and after a sum over `size` ranks, so that the result is the mean.
struct DivideFactors {
  double before = 1, after = 1;
};
DivideFactors divide_factors(Divide divide, int size);

/// bf16 and f16 where the gradients are a device's: the same road as dist/hooks/sliced_mean.h with kernels of that
/// device, and the same bits. After it the mean of `wire` is in bucket.gradients, divided by 1 / `after`.
HookReport mean_by_kernels(HookBucket& bucket, DType wire, double after, Transport& transport);

/// Throws Error `comm hook topk: needs f32 parameters; got …` unless all are f32.
void check_f32(std::string_view hook, const optim::FlatParameters& parameters);

/// The first `numel` elements of `memory`, which grows when it is too small: working memory that lives from call to
/// call.
Tensor scratch(Tensor& memory, std::int64_t numel, DType dtype = DType::f32);

/// Writes zeros between the parameters of t, which has the elements of the bucket: for encodings that cannot say zero.
/// What is in a gap once would travel for ever.
void clear_gaps(const HookBucket& bucket, const Tensor& t);
/// Makes all gradients NaN: the mean where some rank's were not finite, if an encoding cannot say so.
void fill_nan(HookBucket& bucket);

/// Appends `buffer` to what CommHook::state() returns, as "kind.<parameter>".
void append_state(NamedTensors& out, const std::string& kind, const optim::FlatParameters& parameters,
                  const optim::FlatBuffer& buffer);

}  // namespace brigade::dist
