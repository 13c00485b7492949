// SPDX-License-Identifier: MIT
// nn/optim/flat_parameters.h - the memory of a model's parameters: one flat run of values, one of gradients.
//
// Parameters lie one after another in a chosen *order* (usually the reverse of registration: the order in
// which backward finishes them), each on a 64-byte boundary; a parameter's value and gradient are views.
// A bucket is then nothing but a range of positions, and cutting buckets anew moves no memory. Optimizers
// and EMA keep their state in memory of the same layout.
//
// Read before: nn/module.h. Read next: nn/optim/optimizer.h, dist/bucket_plan.h.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/parameters.h"
#include "nn/module.h"

namespace brigade::optim {

/// Positions [begin, end) of the flat order.
struct Range {
  int begin = 0, end = 0;
  int count() const { return end - begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

/// Memory with the layout of a FlatParameters: an optimizer's momentum, an average.
class FlatBuffer;

class FlatParameters {
 public:
  /// Moves values into flat memory and binds gradients. Frozen parameters (requires_grad false)
  /// are left alone and have no position. `order` lists indices into `parameters` (all trainable
  /// ones, each once); empty: the reverse. Throws Error on duplicates, non-floating dtypes or an
  /// order that is not a permutation. `gradient_memory`, if given, makes the gradients' memory, zeroed: ranks that
  /// share memory want it there.
  using MakeMemory = std::function<Storage(std::int64_t bytes)>;
  explicit FlatParameters(std::vector<nn::NamedParameter> parameters, std::vector<int> order = {},
                          const MakeMemory& gradient_memory = {});

  int count() const { return static_cast<int>(entries_.size()); }
  Range all() const { return {0, count()}; }
  /// By position in the flat order.
  const nn::NamedParameter& at(int position) const {
    return entries_[static_cast<std::size_t>(position)].parameter;
  }
  /// The index that the parameter had in the constructor's list.
  int index_at(int position) const { return entries_[static_cast<std::size_t>(position)].index; }
  /// All positions, sorted by index_at(): for what must not depend on the flat order.
  std::vector<int> in_registration_order() const;
  /// Position of a variable; -1 if it is not one of ours.
  int position_of(const Variable& variable) const;

  /// Whether value and gradient of the parameter still are views of this memory: nobody has bound them elsewhere.
  bool holds(int position) const;

  /// Bytes of a range, with alignment gaps (which are zero and stay so under every operation).
  std::int64_t bytes(Range range) const;
  /// The dtype of a range; Error if it mixes several.
  DType dtype(Range range) const;

  /// The maximal ranges of one dtype.
  std::vector<std::pair<Range, DType>> dtype_runs() const;

  /// Flat 1-D views [bytes / item size] over a range of one dtype.
  Tensor values(Range range) const;
  Tensor gradients(Range range) const;

  /// New zeroed memory with this layout.
  FlatBuffer make_buffer() const;

  /// Of a device that decides by itself whether gradients count: an i32 in its memory that optimizers look at, and
  /// leave everything as it is where it is not 0. Undefined: they count. It is the caller's streams that order both.
  void set_skip(Tensor flag) { skip_ = std::move(flag); }
  /// And by which factor they are multiplied first, one f32 of ops::clip_factor(). Undefined: 1.
  void set_clip(Tensor factor) { clip_ = std::move(factor); }
  const Tensor& skip_flag() const { return skip_; }
  /// What the loss is multiplied by, so that f16 gradients do not vanish: one f32 on the parameters' device. Optimizers
  /// divide by it. Undefined: 1.
  void set_grad_scale(Tensor scale) { grad_scale_ = std::move(scale); }
  const Tensor& grad_scale_memory() const { return grad_scale_; }
  /// As a number. Waits for a device.
  double grad_scale() const { return grad_scale_.defined() ? grad_scale_.item() : 1; }
  /// All of these, for kernels.
  StepControl control() const;
  /// The host has learnt that the last update before was skipped: optimizers that have counted it take it back.
  void note_skipped_update() { ++skipped_updates_; }
  std::int64_t skipped_updates() const { return skipped_updates_; }

  void zero_grad();
  /// Writes zeros into the gradients of `range` that hold none (unused
  /// parameters), so that they can be reduced.
  void clear_absent(Range range);

  /// Maximal sub-ranges of `range` of one dtype, whose gradient is present and for
  /// which `key(position)` is equal.
  template <class Key, class Visit>
  void for_each_run(Range range, const Key& key, const Visit& visit) const;

 private:
  friend class FlatBuffer;
  struct Entry {
    nn::NamedParameter parameter;
    int index = 0;
    std::int64_t offset = 0;  // Bytes from the start of the flat memory.
  };
  Tensor view(const Storage& storage, Range range) const;
  std::int64_t offset(int position) const;

  std::vector<Entry> entries_;
  std::int64_t total_bytes_ = 0;
  Storage values_, gradients_;
  Tensor skip_, clip_, grad_scale_;
  std::int64_t skipped_updates_ = 0;
};

class FlatBuffer {
 public:
  FlatBuffer() = default;
  /// Flat view over the same range as FlatParameters::values(range).
  Tensor view(const FlatParameters& layout, Range range) const { return layout.view(storage_, range); }
  /// View in the shape of one parameter.
  Tensor at(const FlatParameters& layout, int position) const;

 private:
  friend class FlatParameters;
  explicit FlatBuffer(Storage storage) : storage_(std::move(storage)) {}
  Storage storage_;
};

template <class Key, class Visit>
void FlatParameters::for_each_run(Range range, const Key& key, const Visit& visit) const {
  for (int i = range.begin; i < range.end;) {
    if (!at(i).variable.grad().defined()) {
      ++i;
      continue;
    }
    int end = i + 1;
    while (end < range.end && at(end).variable.grad().defined() &&
           at(end).variable.dtype() == at(i).variable.dtype() && key(end) == key(i))
      ++end;
    visit(Range{i, end});
    i = end;
  }
}

}  // namespace brigade::optim
