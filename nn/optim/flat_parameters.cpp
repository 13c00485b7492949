// SPDX-License-Identifier: MIT
// nn/optim/flat_parameters.cpp - laying parameters out in flat memory.
#include "nn/optim/flat_parameters.h"

#include <algorithm>
#include <numeric>

#include "core/fault_point.h"

namespace brigade::optim {

namespace {

void check_parameters(const std::vector<nn::NamedParameter>& parameters) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const nn::NamedParameter& p = parameters[i];
    BRIGADE_CHECK(p.variable.defined(), "flat parameters: \"", p.name, "\" is undefined");
    if (!p.variable.requires_grad()) continue;
    BRIGADE_CHECK(p.variable.is_leaf() && is_floating(p.variable.dtype()), "flat parameters: \"", p.name,
                  "\" must be a floating leaf; got ", p.variable.dtype());
    BRIGADE_CHECK(p.variable.value().device() == parameters[0].variable.value().device(),
                  "flat parameters: all must be on one device; got \"", p.name, "\" on ",
                  p.variable.value().device(), ", \"", parameters[0].name, "\" on ",
                  parameters[0].variable.value().device());
    for (std::size_t j = 0; j < i; ++j)
      BRIGADE_CHECK(!(parameters[j].variable == p.variable),
                    "flat parameters: each parameter once; got one as \"", parameters[j].name, "\" and \"",
                    p.name, "\"");
  }
}

// Indices of the trainable parameters, in flat order.
std::vector<int> flat_order(const std::vector<nn::NamedParameter>& parameters, std::vector<int> order) {
  std::vector<int> trainable;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].variable.requires_grad()) trainable.push_back(static_cast<int>(i));
  if (order.empty()) {
    std::reverse(trainable.begin(), trainable.end());
    return trainable;
  }
  std::vector<int> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  BRIGADE_CHECK(sorted == trainable, "flat parameters: order must list each of the ", trainable.size(),
                " trainable parameters once; got ", order.size(), " entries");
  return order;
}

Storage zeroed(Device device, std::int64_t bytes) {
  Storage storage(device, bytes);
  runtime(device).fill_zero(storage.data(), bytes);
  return storage;
}

}  // namespace

FlatParameters::FlatParameters(std::vector<nn::NamedParameter> parameters, std::vector<int> order,
                               const MakeMemory& gradient_memory) {
  check_parameters(parameters);
  for (const int index : flat_order(parameters, std::move(order))) {
    nn::NamedParameter& parameter = parameters[static_cast<std::size_t>(index)];
    const std::int64_t bytes = aligned(parameter.variable.value().bytes());
    entries_.push_back({std::move(parameter), index, total_bytes_});
    total_bytes_ += bytes;
  }
  if (entries_.empty()) return;

  const Device device = at(0).variable.value().device();
  values_ = zeroed(device, total_bytes_);  // Zeroed for the gaps, which take part in updates and norms.
  gradients_ = gradient_memory ? gradient_memory(total_bytes_) : zeroed(device, total_bytes_);
  for (Entry& entry : entries_) {
    Variable& variable = entry.parameter.variable;
    const auto view = [&](const Storage& memory) {
      return Tensor::over(memory.slice(entry.offset, variable.value().bytes()), variable.shape(),
                          variable.dtype());
    };
    variable.bind_value(view(values_));
    variable.bind_grad(view(gradients_));
  }
}

StepControl FlatParameters::control() const {
  return {.skip = skip_.defined() ? skip_.data<std::int32_t>() : nullptr,
          .grad_scale = grad_scale_.defined() ? grad_scale_.data<float>() : nullptr,
          .clip = clip_.defined() ? clip_.data<float>() : nullptr};
}

std::vector<int> FlatParameters::in_registration_order() const {
  std::vector<int> positions(entries_.size());
  std::iota(positions.begin(), positions.end(), 0);
  std::sort(positions.begin(), positions.end(), [&](int a, int b) { return index_at(a) < index_at(b); });
  return positions;
}

int FlatParameters::position_of(const Variable& variable) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.parameter.variable == variable; });
  return found == entries_.end() ? -1 : static_cast<int>(found - entries_.begin());
}

bool FlatParameters::holds(int position) const {
  const Variable& variable = at(position).variable;
  const std::int64_t begin = offset(position);
  return variable.value().raw() == values_.data() + begin &&
         variable.grad_memory().raw() == gradients_.data() + begin;
}

std::int64_t FlatParameters::offset(int position) const {
  return position == count() ? total_bytes_ : entries_[static_cast<std::size_t>(position)].offset;
}

std::int64_t FlatParameters::bytes(Range range) const {
  BRIGADE_CHECK(0 <= range.begin && range.begin <= range.end && range.end <= count(),
                "flat parameters: range must lie in [0, ", count(), "); got [", range.begin, ", ", range.end,
                ")");
  return offset(range.end) - offset(range.begin);
}

DType FlatParameters::dtype(Range range) const {
  BRIGADE_CHECK(range.count() > 0, "flat parameters: an empty range has no dtype");
  const DType first = at(range.begin).variable.dtype();
  for (int i = range.begin; i < range.end; ++i)
    BRIGADE_CHECK(at(i).variable.dtype() == first, "flat parameters: a range must have one dtype; got \"",
                  at(range.begin).name, "\" ", first, ", \"", at(i).name, "\" ", at(i).variable.dtype());
  return first;
}

std::vector<std::pair<Range, DType>> FlatParameters::dtype_runs() const {
  std::vector<std::pair<Range, DType>> runs;
  for (int i = 0; i < count(); ++i) {
    const DType dtype = at(i).variable.dtype();
    if (runs.empty() || runs.back().second != dtype) runs.push_back({{i, i}, dtype});
    runs.back().first.end = i + 1;
  }
  return runs;
}

Tensor FlatParameters::view(const Storage& storage, Range range) const {
  const std::int64_t size = bytes(range);
  const DType type = dtype(range);
  return Tensor::over(storage.slice(offset(range.begin), size), {size / size_of(type)}, type);
}

Tensor FlatParameters::values(Range range) const { return view(values_, range); }
Tensor FlatParameters::gradients(Range range) const { return view(gradients_, range); }

FlatBuffer FlatParameters::make_buffer() const {
  return entries_.empty() ? FlatBuffer() : FlatBuffer(zeroed(values_.device(), total_bytes_));
}

void FlatParameters::zero_grad() {
  for (Entry& entry : entries_) {
    entry.parameter.variable.zero_grad();
    fault_point(FaultAt::weight, entry.parameter.variable.value(),
                entry.parameter.name);  // A step begins here.
  }
}

void FlatParameters::clear_absent(Range range) {
  for (int i = range.begin; i < range.end; ++i) {
    const Variable& variable = at(i).variable;
    if (variable.grad().defined()) continue;
    const Tensor memory = variable.grad_memory();
    runtime(memory.device()).fill_zero(memory.raw(), memory.bytes());
    memory.bump_version();
  }
}

Tensor FlatBuffer::at(const FlatParameters& layout, int position) const {
  const Variable& variable = layout.at(position).variable;
  const Storage slice = storage_.slice(layout.offset(position), variable.value().bytes());
  return Tensor::over(slice, variable.shape(), variable.dtype());
}

}  // namespace brigade::optim
