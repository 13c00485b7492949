// SPDX-License-Identifier: MIT
// dist/shm/channels.cpp - a message is a header and its bytes, one behind the other.
#include "dist/shm/channels.h"

#include <algorithm>
#include <cstring>

#include "dist/work.h"

namespace brigade::dist {
namespace {

struct Header {
  std::int64_t count = 0;
  std::int64_t dtype = 0;
};

// Bytes under way into a ring or out of it: first the header, then the tensor.
struct Stream {
  ByteRing& ring;
  Header& header;
  std::byte* body;
  std::int64_t bytes;  // Of both together.
  std::int64_t done = 0;

  bool finished() const { return done == bytes; }
  std::uint64_t filled() const { return ring.written.load() - ring.read.load(); }

  // move(my bytes, ring's bytes, n) for all that can move now, in pieces that wrap around neither.
  template <class Move>
  std::int64_t move_some(std::uint64_t position, std::uint64_t possible, const Move& move) {
    auto left = std::min(static_cast<std::int64_t>(possible), bytes - done);
    const std::int64_t moved = left;
    while (left > 0) {
      const auto at = static_cast<std::int64_t>(position % ByteRing::kBytes);
      const bool in_header = done < static_cast<std::int64_t>(sizeof(Header));
      const std::int64_t rest = in_header ? static_cast<std::int64_t>(sizeof(Header)) - done : bytes - done;
      const std::int64_t n = std::min({left, rest, static_cast<std::int64_t>(ByteRing::kBytes) - at});
      std::byte* const here = in_header ? reinterpret_cast<std::byte*>(&header) + done
                                        : body + (done - static_cast<std::int64_t>(sizeof(Header)));
      move(here, ring.bytes + at, static_cast<std::size_t>(n));
      position += static_cast<std::uint64_t>(n);
      done += n;
      left -= n;
    }
    return moved;
  }

  bool can_write() const { return filled() < ByteRing::kBytes; }
  bool write_some() {
    const std::uint64_t position = ring.written.load();
    const std::int64_t moved =
        move_some(position, ByteRing::kBytes - filled(),
                  [](std::byte* mine, std::byte* theirs, std::size_t n) { std::memcpy(theirs, mine, n); });
    ring.written.store(position + static_cast<std::uint64_t>(moved));
    return moved > 0;
  }

  bool can_read() const { return filled() > 0; }
  bool read_some(std::uint64_t limit) {
    const std::uint64_t position = ring.read.load();
    const std::int64_t moved =
        move_some(position, std::min(filled(), limit),
                  [](std::byte* mine, std::byte* theirs, std::size_t n) { std::memcpy(mine, theirs, n); });
    ring.read.store(position + static_cast<std::uint64_t>(moved));
    return moved > 0;
  }
};

Header header_of(const Tensor& t) { return {t.numel(), static_cast<std::int64_t>(t.dtype())}; }

}  // namespace

void Channels::exchange(const Tensor* sent, int to, Tensor* received, int from) {
  constexpr auto kHeader = static_cast<std::int64_t>(sizeof(Header));
  meeting_->check_alive();
  const int rank = meeting_->rank();
  Header mine = sent != nullptr ? header_of(*sent) : Header(), theirs;
  std::optional<Stream> out, in;
  if (sent != nullptr)
    out.emplace(Stream{meeting_->memory().ring(rank, to), mine, sent->raw(), kHeader + sent->bytes()});
  if (received != nullptr)
    in.emplace(
        Stream{meeting_->memory().ring(from, rank), theirs, received->raw(), kHeader + received->bytes()});
  while ((out && !out->finished()) || (in && !in->finished())) {
    bool moved = false;
    if (out && !out->finished() && out->write_some()) {
      moved = true;
      meeting_->wake(to);
    }
    if (in && !in->finished()) {
      const bool in_header = in->done < kHeader;
      if (in->read_some(in_header ? sizeof(Header) : ByteRing::kBytes)) {
        moved = true;
        meeting_->wake(from);
        if (in_header && in->done == kHeader &&
            (theirs.count != received->numel() || theirs.dtype != header_of(*received).dtype))
          throw CommError(str("rank ", from, " sent ", static_cast<DType>(theirs.dtype), " x ", theirs.count,
                              ", rank ", rank, " receives ", received->dtype(), " x ", received->numel()));
      }
    }
    if (moved) continue;
    receives_from_ = in && !in->finished() ? from : -1;
    sends_to_ = out && !out->finished() ? to : -1;
    meeting_->wait([&] {
      return (out && !out->finished() && out->can_write()) || (in && !in->finished() && in->can_read());
    });
  }
  receives_from_ = sends_to_ = -1;
}

std::optional<std::string> Channels::arrivals() const {
  if (const int from = receives_from_; from >= 0) return str("waiting for a message from rank ", from);
  if (const int to = sends_to_; to >= 0) return str("waiting for rank ", to, " to receive a message");
  return std::nullopt;
}

}  // namespace brigade::dist
