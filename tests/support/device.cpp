// SPDX-License-Identifier: MIT
// tests/support/device.cpp - the reference table on the host for tensors of a device: one wrapper for all slots, made
// from their types.
#include "tests/support/device.h"

#include <tuple>
#include <type_traits>
#include <vector>

#include "kernels/packed_conv.h"

namespace brigade::test {
namespace {

// What a call moved to the host. Two arguments that are one view stay one.
class Host {
 public:
  Tensor move(const Tensor& t) {
    if (!t.defined()) return t;
    for (const Pair& pair : pairs_)
      if (pair.device.same_view(t)) return pair.host;
    pairs_.push_back({t, t.to(Device{})});
    return pairs_.back().host;
  }
  /// `t` on the device gets what `host` became.
  void bring_back(const Tensor& host, Tensor& t) const {
    if (!host.defined()) return;
    for (const Pair& pair : pairs_)
      if (pair.host.same_view(host)) {
        t = pair.device;
        copy(host, t);
        return;
      }
    t = host.to(test_device());  // The slot made it.
  }

  // By type of argument. What is neither a tensor nor made of some stays.
  template <class T>
  T take(const T& value) {
    return value;
  }
  Tensor take(const Tensor& t) { return move(t); }
  ChannelMoments take(const ChannelMoments& m) { return {move(m.mean), move(m.squares)}; }
  BatchNormTail take(const BatchNormTail& tail) { return {tail.relu, move(tail.residual)}; }
  BatchNormForward take(const BatchNormForward& f) {
    return {move(f.x), move(f.gamma), move(f.mean), move(f.invstd), move(f.shift), move(f.y)};
  }
  AttentionForward take(const AttentionForward& f) {
    return {move(f.q), move(f.k), move(f.v), move(f.out), move(f.log_sums)};
  }
  template <class T>
  void give(const T&, const T&) const {}
  void give(const Tensor& host, Tensor& t) const { bring_back(host, t); }
  void give(const ChannelMoments& host, ChannelMoments& m) const {
    bring_back(host.mean, m.mean);
    bring_back(host.squares, m.squares);
  }

 private:
  struct Pair {
    Tensor device, host;
  };

  // The bytes of all elements and of what lies between them, which came along as they were.
  static void copy(const Tensor& host, Tensor& t) {
    if (t.numel() == 0) return;
    std::int64_t extent = 1;
    for (int d = 0; d < t.dims(); ++d) extent += (t.shape()[d] - 1) * t.stride(d);
    copy_bytes(t.raw(), t.device(), host.raw(), host.device(), extent * t.item_bytes());
  }

  std::vector<Pair> pairs_;
};

template <auto slot, class Function = std::remove_cvref_t<decltype(std::declval<const KernelTable&>().*slot)>>
struct OnHost;

template <auto slot, class Result, class... Args>
struct OnHost<slot, Result (*)(Args...)> {
  static Result call(Args... args) {
    Host host;
    std::tuple<std::remove_cvref_t<Args>...> moved{host.take(args)...};
    const auto run = [&](auto&... here) { return (reference_kernels().*slot)(here...); };
    // Only what is taken by reference and not const is an output.
    const auto bring_back = [&] {
      std::apply(
          [&](const auto&... here) {
            ((std::is_lvalue_reference_v<Args> && !std::is_const_v<std::remove_reference_t<Args>>
                  ? host.give(here, args)
                  : void()),
             ...);
          },
          moved);
    };
    if constexpr (std::is_void_v<Result>) {
      std::apply(run, moved);
      bring_back();
    } else {
      return std::apply(run, moved);
    }
  }
};

template <auto slot>
constexpr auto on_host = OnHost<slot>::call;

}  // namespace

const KernelTable& reference() {
  static constexpr KernelTable table{
      .fill = on_host<&KernelTable::fill>,
      .copy = on_host<&KernelTable::copy>,
      .unary = on_host<&KernelTable::unary>,
      .binary = on_host<&KernelTable::binary>,
      .binary_scalar = on_host<&KernelTable::binary_scalar>,
      .where = on_host<&KernelTable::where>,
      .random_uniform = on_host<&KernelTable::random_uniform>,
      .random_normal = on_host<&KernelTable::random_normal>,
      .dropout = on_host<&KernelTable::dropout>,
      .reduce = on_host<&KernelTable::reduce>,
      .argmax = on_host<&KernelTable::argmax>,
      .sum_of_squares = on_host<&KernelTable::sum_of_squares>,
      .computed_in = on_host<&KernelTable::computed_in>,
      .matmul = on_host<&KernelTable::matmul>,
      .linear = on_host<&KernelTable::linear>,
      .linear_grad_input = on_host<&KernelTable::linear_grad_input>,
      .linear_grad_weight = on_host<&KernelTable::linear_grad_weight>,
      .conv2d = on_host<&KernelTable::conv2d>,
      .conv2d_with_moments = on_host<&KernelTable::conv2d_with_moments>,
      .conv2d_grad_input = on_host<&KernelTable::conv2d_grad_input>,
      .conv2d_grad_weight = on_host<&KernelTable::conv2d_grad_weight>,
      .can_pack_conv2d = on_host<&KernelTable::can_pack_conv2d>,
      .pack_conv2d = on_host<&KernelTable::pack_conv2d>,
      .quantize = on_host<&KernelTable::quantize>,
      .bias_grad = on_host<&KernelTable::bias_grad>,
      .max_pool2d = on_host<&KernelTable::max_pool2d>,
      .max_pool2d_grad = on_host<&KernelTable::max_pool2d_grad>,
      .avg_pool2d = on_host<&KernelTable::avg_pool2d>,
      .avg_pool2d_grad = on_host<&KernelTable::avg_pool2d_grad>,
      .adaptive_avg_pool2d = on_host<&KernelTable::adaptive_avg_pool2d>,
      .adaptive_avg_pool2d_grad = on_host<&KernelTable::adaptive_avg_pool2d_grad>,
      .batch_norm_train = on_host<&KernelTable::batch_norm_train>,
      .batch_norm_eval = on_host<&KernelTable::batch_norm_eval>,
      .batch_norm_moments = on_host<&KernelTable::batch_norm_moments>,
      .batch_norm_grad_sums = on_host<&KernelTable::batch_norm_grad_sums>,
      .batch_norm_grad_input = on_host<&KernelTable::batch_norm_grad_input>,
      .layer_norm = on_host<&KernelTable::layer_norm>,
      .layer_norm_grad = on_host<&KernelTable::layer_norm_grad>,
      .softmax = on_host<&KernelTable::softmax>,
      .log_softmax = on_host<&KernelTable::log_softmax>,
      .softmax_grad = on_host<&KernelTable::softmax_grad>,
      .log_softmax_grad = on_host<&KernelTable::log_softmax_grad>,
      .cross_entropy = on_host<&KernelTable::cross_entropy>,
      .cross_entropy_grad = on_host<&KernelTable::cross_entropy_grad>,
      .attention = on_host<&KernelTable::attention>,
      .attention_grad = on_host<&KernelTable::attention_grad>,
      .embedding = on_host<&KernelTable::embedding>,
      .embedding_grad = on_host<&KernelTable::embedding_grad>,
      .find_out_of_range = on_host<&KernelTable::find_out_of_range>,
      .sgd = on_host<&KernelTable::sgd>,
      .adamw = on_host<&KernelTable::adamw>,
      .lerp = on_host<&KernelTable::lerp>,
      .clip_factor = on_host<&KernelTable::clip_factor>,
      .trust_ratio = on_host<&KernelTable::trust_ratio>,
      .flag_non_finite = on_host<&KernelTable::flag_non_finite>,
      .update_loss_scale = on_host<&KernelTable::update_loss_scale>,
      .augment_images = on_host<&KernelTable::augment_images>,
  };
  return test_device().type == DeviceType::cpu ? reference_kernels() : table;
}

}  // namespace brigade::test
