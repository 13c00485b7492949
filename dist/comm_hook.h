// SPDX-License-Identifier: MIT
// dist/comm_hook.h - what travels: how the mean of a bucket over ranks is taken, exactly or compressed, and the name
// table of the ways. A hook is a file in dist/hooks/ and a line in dist/hooks/table.cpp; --help, the error "unknown
// comm hook" and the tests come from that table. Read before: dist/transport.h, nn/optim/flat_parameters.h.
// Read next: dist/hooks/, dist/bucket_reducer.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/safetensors.h"
#include "dist/transport.h"
#include "nn/optim/flat_parameters.h"

namespace brigade::dist {

/// Where the sum over N ranks becomes a mean. Dividing before keeps a sum in range, dividing after keeps small
/// gradients from vanishing, split divides by sqrt(N) on either side. automatic is after, for every dtype: all sums of
/// ours are accumulated in f32 or wider and rounded once, so that neither can happen. (A backend that adds up in 16
/// bits will want split there.)
enum class Divide : std::uint8_t { automatic, before, after, split };

/// One bucket as a hook sees it, on the communication stream.
struct HookBucket {
  const optim::FlatParameters& parameters;
  optim::Range range;  ///< Its positions in the flat order.
  /// Elements of the flat view over `range` that travel: all of them, or a part of a single large tensor.
  std::int64_t begin = 0, end = 0;
  Tensor
      gradients;  ///< [end - begin], 1-D: this rank's gradients; the hook leaves the mean over ranks there.
  std::int64_t step = 0;  ///< Counts synchronised backwards; for random numbers that all ranks share.
  /// On a device, whose numbers no hook can see: gets what is about to travel in another type, to find what does not
  /// fit it. Empty: nobody looks.
  std::function<void(const Tensor& sent)> sending = {};

  bool whole() const { return gradients.numel() == parameters.bytes(range) / gradients.item_bytes(); }
  /// The same elements of memory with the layout of the parameters: a hook's own state, like an error kept back. Not
  /// for a bucket without elements.
  Tensor of(const optim::FlatBuffer& buffer) const {
    return buffer.view(parameters, range).slice(0, begin, end);
  }
  /// Where `gradients` begins in the flat view over all parameters: the same element under every plan.
  std::int64_t flat_begin() const {
    return parameters.bytes({0, range.begin}) / gradients.item_bytes() + begin;
  }
  /// Calls visit(position, first, last): the elements [first, last) of `gradients` are those of the parameter at
  /// `position`, as far as they travel here. Between parameters lie alignment gaps, whose zeros must stay.
  template <class Visit>
  void for_each_parameter(const Visit& visit) const {
    const std::int64_t item = gradients.item_bytes(), count = gradients.numel();
    for (int i = range.begin; i < range.end; ++i) {
      const std::int64_t first = parameters.bytes({range.begin, i}) / item - begin;
      const std::int64_t last = first + parameters.at(i).variable.value().numel();
      if (first < count && last > 0) visit(i, std::max<std::int64_t>(first, 0), std::min(last, count));
    }
  }
};

struct HookReport {
  /// Payload that this rank handed to collectives, before what their algorithms make of it: of n elements `none` hands
  /// in 4n bytes, bf16 2n for the slices of all ranks and 2n/N for its own mean.
  std::int64_t wire_bytes = 0;
  /// Position of the first parameter whose gradient on this rank did not fit the type that travels (it was finite, but
  /// became infinite); -1: none. Of gradients on a device always -1: see HookBucket::sending.
  int overflow = -1;
};

/// Takes the mean of one bucket over ranks. State (errors kept back, low-rank factors) is kept by parameter, so that it
/// survives new bucket plans. Calls come from the communication stream only, in the same order on every rank; every
/// rank must leave the same bits. A gradient that is not finite on some rank leaves something that is not finite on
/// all, and changes no state.
class CommHook {
 public:
  virtual ~CommHook() = default;
  virtual HookReport mean(HookBucket& bucket, Transport& transport) = 0;
  /// What this rank keeps from step to step, by name, sharing memory: for checkpoints. Not while mean() runs.
  virtual NamedTensors state(const optim::FlatParameters&) { return {}; }
};

struct HookOptions {
  Divide divide = Divide::automatic;  ///< Of hooks that sum what they are given: none, bf16, f16.
  int rank = 2;                       ///< powersgd: columns of the factors.
  double fraction = 0.01;             ///< topk: share of elements that travels.
  std::uint64_t seed = 0;             ///< Of hooks that draw random numbers.
};

struct HookEntry {
  std::string_view name;
  std::string_view description;  ///< One line for --help.
  std::unique_ptr<CommHook> (*make)(const optim::FlatParameters& parameters, const HookOptions& options);
  bool exact = false;  ///< The mean is that of the gradients' own dtype: theorems about equal bits hold.
  /// Puts the number of "topk:0.001" into the options; nullptr: the hook takes none.
  void (*set_number)(HookOptions& options, double number) = nullptr;
  bool divides = false;    ///< Heeds HookOptions::divide.
  bool on_device = false;  ///< Works on gradients of a device, too.
};

std::span<const HookEntry> comm_hooks();
/// The entry of "topk" or "topk:0.001". Throws Error listing the choices for an unknown name.
const HookEntry& comm_hook(std::string_view name);
/// Makes the hook called "topk" or, with its number, "topk:0.001", "powersgd:4". Throws Error listing the choices for
/// an unknown name, and Error for a number out of range or where the hook cannot work on these parameters (all but none
/// need f32; on a device only some work).
std::unique_ptr<CommHook> make_comm_hook(std::string_view name, const optim::FlatParameters& parameters,
                                         HookOptions options = {});

}  // namespace brigade::dist
