// SPDX-License-Identifier: MIT
// dist/tcp/tcp_transport.cpp - every collective is a set of messages that are under way at once.
#include "dist/tcp/tcp_transport.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "dist/algorithms/algorithms.h"
#include "dist/chunks.h"
#include "dist/reduce_buffers.h"

namespace brigade::dist {
namespace {

using Way = TcpMessage::Way;

// Up to so many bytes from all ranks together, one step of everybody to everybody beats the 2 (p-1) steps of a ring.
constexpr std::int64_t kDirectBytes = 128 * 1024;
// What a root takes in at a time from each rank.
constexpr std::int64_t kPieceBytes = std::int64_t{1} << 20;

// Elements [begin, begin + n) in the order of memory, whatever the shape of t.
Tensor part(const Tensor& t, std::int64_t begin, std::int64_t n) {
  const std::int64_t at = t.raw() - t.storage().data() + begin * t.item_bytes();
  return Tensor::over(t.storage().slice(at, n * t.item_bytes()), {n}, t.dtype());
}
Tensor block(const Tensor& t, std::int64_t k, std::int64_t n) { return part(t, k * n, n); }

void copy(const Tensor& to, const Tensor& from) {
  if (from.bytes() > 0 && to.raw() != from.raw())
    std::memcpy(to.raw(), from.raw(), static_cast<std::size_t>(from.bytes()));
}

class TcpTransport final : public Transport {
 public:
  TcpTransport(std::shared_ptr<TcpLines> lines, std::vector<int> ranks)
      : lines_(std::move(lines)), ranks_(std::move(ranks)) {
    if (ranks_.empty()) {
      ranks_.resize(static_cast<std::size_t>(lines_->size()));
      std::iota(ranks_.begin(), ranks_.end(), 0);
    }
    rank_ = static_cast<int>(std::find(ranks_.begin(), ranks_.end(), lines_->rank()) - ranks_.begin());
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ranks_.size()); }
  std::string_view name() const override { return "tcp"; }
  bool any_thread() const override { return true; }

  void send(const Tensor& t, int to) override { exchange({{Way::out, to, t}}); }
  void recv(Tensor& t, int from) override { exchange({{Way::in, from, t}}); }
  void send_recv(const Tensor& sent, int to, Tensor& received, int from) override {
    if (to == rank_ && from == rank_) return copy(received, sent);
    exchange({{Way::out, to, sent}, {Way::in, from, received}});
  }

  void broadcast(Tensor& t, int root) override {
    if (rank_ != root) return recv(t, root);
    exchange(to_others([&](int) { return t; }));
  }

  void all_reduce(Tensor& t, Reduce op) override {
    if (size() == 1) return;
    if (t.bytes() * size() > kDirectBytes) return dist::all_reduce(ring_all_reduce, *this, t, op);
    const Tensor all = Tensor::empty({t.numel() * size()}, t.dtype());
    exchange_with_all([&](int) { return t; }, [&](int r) { return block(all, r, t.numel()); }, t);
    reduce_blocks(all, t, op);
  }

  void reduce(Tensor& t, Reduce op, int root) override {
    for_pieces(t, [&](Tensor piece) {
      if (rank_ != root) return send(piece, root);
      const Tensor all = Tensor::empty({piece.numel() * size()}, t.dtype());
      exchange(from_others([&](int r) { return block(all, r, piece.numel()); }));
      copy(block(all, rank_, piece.numel()), piece);
      reduce_blocks(all, piece, op);
    });
  }

  void reduce_scatter(const Tensor& t, Tensor& out, Reduce op) override {
    const Tensor mine = Tensor::empty({t.numel()}, t.dtype());
    const std::int64_t n = out.numel();
    exchange_with_all([&](int r) { return block(t, r, n); }, [&](int r) { return block(mine, r, n); },
                      block(t, rank_, n));
    reduce_blocks(mine, out, op);
  }

  void all_gather(const Tensor& t, Tensor& out) override {
    exchange_with_all([&](int) { return t; }, [&](int r) { return block(out, r, t.numel()); }, t);
  }

  void gather(const Tensor& t, Tensor& out, int root) override {
    if (rank_ != root) return send(t, root);
    exchange(from_others([&](int r) { return block(out, r, t.numel()); }));
    copy(block(out, rank_, t.numel()), t);
  }

  void scatter(const Tensor& t, Tensor& out, int root) override {
    if (rank_ != root) return recv(out, root);
    exchange(to_others([&](int r) { return block(t, r, out.numel()); }));
    copy(out, block(t, rank_, out.numel()));
  }

  void all_to_all(const Tensor& t, Tensor& out) override {
    const std::int64_t n = t.numel() / size();
    exchange_with_all([&](int r) { return block(t, r, n); }, [&](int r) { return block(out, r, n); },
                      block(t, rank_, n));
  }

  void barrier() override {
    const Tensor none = Tensor::empty({0}, DType::u8);
    exchange_with_all([&](int) { return none; }, [&](int) { return none; }, none);
  }

  std::optional<std::string> failure() const override { return lines_->failure(); }
  void abort(const std::string& reason) noexcept override { lines_->abort(reason); }
  std::string arrivals() const override { return lines_->arrivals().value_or("it waits for no other rank"); }
  void close() override {
    barrier();
    if (size() == lines_->size()) lines_->leave();  // Groups of some ranks end before that of all.
  }

 private:
  using Messages = std::vector<TcpMessage>;

  // Peers of the messages are ranks of this group.
  void exchange(Messages messages) {
    for (TcpMessage& m : messages) m.peer = ranks_[static_cast<std::size_t>(m.peer)];
    lines_->exchange(messages);
  }

  // of(r): the tensor for rank r, or from it.
  template <class Of>
  Messages with_others(Way way, const Of& of) const {
    Messages messages;
    for (int r = 0; r < size(); ++r)
      if (r != rank_) messages.push_back({way, r, of(r)});
    return messages;
  }
  template <class Of>
  Messages to_others(const Of& of) const {
    return with_others(Way::out, of);
  }
  template <class Of>
  Messages from_others(const Of& of) const {
    return with_others(Way::in, of);
  }

  // Everybody to everybody at once; `own` is this rank's part for itself.
  template <class Sent, class Received>
  void exchange_with_all(const Sent& sent, const Received& received, const Tensor& own) {
    Messages messages = to_others(sent), in = from_others(received);
    messages.insert(messages.end(), in.begin(), in.end());
    copy(received(rank_), own);
    exchange(std::move(messages));
  }

  // One block a rank, in rank order, into `out`.
  void reduce_blocks(const Tensor& blocks, const Tensor& out, Reduce op) const {
    std::vector<const std::byte*> sources;
    for (int r = 0; r < size(); ++r) sources.push_back(blocks.raw() + r * out.bytes());
    std::byte* const target = out.raw();
    reduce_buffers(sources, {&target, 1}, out.dtype(), out.numel(), op);
  }

  template <class Body>
  static void for_pieces(const Tensor& t, const Body& body) {
    if (t.numel() == 0) return body(part(t, 0, 0));  // Ranks meet all the same.
    for_each_chunk(t.numel(), kPieceBytes / t.item_bytes(),
                   [&](std::int64_t at, std::int64_t n) { body(part(t, at, n)); });
  }

  const std::shared_ptr<TcpLines> lines_;
  std::vector<int> ranks_;
  int rank_ = 0;
};

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(std::shared_ptr<TcpLines> lines, std::vector<int> ranks) {
  return std::make_unique<TcpTransport>(std::move(lines), std::move(ranks));
}

}  // namespace brigade::dist
