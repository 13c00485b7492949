// SPDX-License-Identifier: MIT
// dist/device_transport.h - a transport for the tensors of a device beside those of the CPU: a carrier takes the ones,
// the host's transport the others, and all that is said about calls. Read before: dist/transport.h.
// Read next: dist/device_choice.h (which carrier), dist/staged/staged_carrier.h, dist/nccl/nccl_carrier.h.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "dist/transport.h"

namespace brigade::dist {

/// How the tensors of one device travel. Calls, order, aliases and errors: as Transport's. What a call enqueues is
/// ordered by the calling thread's current stream of the device.
class Carrier {
 public:
  virtual ~Carrier() = default;  ///< Never communicates, nor waits for peers.

  virtual std::string name() const = 0;  ///< "nccl 2.28.9"; empty where nothing travels.

  virtual void send(const Tensor& t, int to) = 0;
  virtual void recv(Tensor& t, int from) = 0;
  virtual void send_recv(const Tensor& sent, int to, Tensor& received, int from) = 0;
  virtual void broadcast(Tensor& t, int root) = 0;
  virtual void all_reduce(Tensor& t, Reduce op) = 0;
  virtual void reduce(Tensor& t, Reduce op, int root) = 0;
  virtual void reduce_scatter(const Tensor& t, Tensor& out, Reduce op) = 0;
  virtual void all_gather(const Tensor& t, Tensor& out) = 0;
  virtual void gather(const Tensor& t, Tensor& out, int root) = 0;
  virtual void scatter(const Tensor& t, Tensor& out, int root) = 0;
  virtual void all_to_all(const Tensor& t, Tensor& out) = 0;

  /// Transport::why_not_captured().
  virtual std::string why_not_captured() const = 0;
  /// From any thread, as is abort().
  virtual std::optional<std::string> failure() const { return std::nullopt; }
  /// Ends what is under way on the device.
  virtual void abort() noexcept {}
  /// Ordered end on all ranks, when the device is through with everything.
  virtual void close() {}
};

/// `choice`: Transport::choice().
std::unique_ptr<Transport> make_device_transport(std::unique_ptr<Transport> host,
                                                 std::unique_ptr<Carrier> carrier, Device device,
                                                 std::string choice);

/// For a group of one: nothing travels, blocks are copied on the device.
std::unique_ptr<Carrier> make_lone_carrier();

}  // namespace brigade::dist
