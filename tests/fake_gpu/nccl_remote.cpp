// SPDX-License-Identifier: MIT
// tests/fake_gpu/nccl_remote.cpp - a rank has two connections: one for calls of its stream, which may wait for peers,
// one for questions and for the abort, which may not. A process that ends leaves its peers waiting, as with the real
// library.
#include "tests/fake_gpu/nccl_remote.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <thread>

namespace fake_gpu {
namespace {

enum class Ask : std::uint32_t { join, leave, abort, state, last_error, run, exchange };

// Followed by the messages' descriptions and by the bytes that go in. Pointers mean nothing on the other side.
struct Request {
  Ask what;
  int rank = 0, size = 0, device = 0, may_share = 0;
  std::uint64_t world = 0, sends = 0, receives = 0;
  NcclCall call{NcclCall::What::all_reduce};
};
// Followed by `bytes` of what comes out, or of a text.
struct Answer {
  std::int64_t code = 0;
  std::uint64_t bytes = 0;
};

bool send_all(int socket, const void* data, std::size_t bytes) {
  for (const auto* at = static_cast<const char*>(data); bytes > 0;) {
    const ssize_t n = send(socket, at, bytes, MSG_NOSIGNAL);
    if (n <= 0) return false;
    at += n;
    bytes -= static_cast<std::size_t>(n);
  }
  return true;
}
bool receive_all(int socket, void* data, std::size_t bytes) {
  for (auto* at = static_cast<char*>(data); bytes > 0;) {
    const ssize_t n = recv(socket, at, bytes, 0);
    if (n <= 0) return false;
    at += n;
    bytes -= static_cast<std::size_t>(n);
  }
  return true;
}

// A socket at the process's abstract name.
int open_socket(std::int64_t process, sockaddr_un& address, socklen_t& length) {
  const std::string name = "emulated-nccl-" + std::to_string(process);
  address = {};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

// Bytes that a rank gives to a call, and that it gets.
std::size_t bytes_in(const NcclCall& call, int size) {
  const std::size_t one = call.count * nccl_size_of(call.type);
  return call.what == NcclCall::What::reduce_scatter ? one * static_cast<std::size_t>(size) : one;
}
std::size_t bytes_out(const NcclCall& call, int rank, int size) {
  const std::size_t one = call.count * nccl_size_of(call.type);
  if (call.what == NcclCall::What::all_gather) return one * static_cast<std::size_t>(size);
  return call.what == NcclCall::What::reduce && rank != call.root ? 0 : one;
}
std::size_t bytes_of(const NcclMessage& message) { return message.count * nccl_size_of(message.type); }

// One request of a remote rank. Its answer, or nothing: the connection has ended.
bool answer(int socket, NcclWorld& world, const Request& request) {
  Answer reply;
  std::vector<std::byte> out;
  std::vector<NcclMessage> sends(request.sends), receives(request.receives);
  std::vector<std::vector<std::byte>> buffers;
  switch (request.what) {
    case Ask::join:
      world.join(request.rank, request.device, request.may_share != 0);
      break;
    case Ask::leave:
      world.leave(request.rank);
      break;
    case Ask::abort:
      world.abort(request.rank);
      break;
    case Ask::state:
      reply.code = world.state(request.rank);
      break;
    case Ask::last_error: {
      const std::string text = world.last_error(request.rank);
      const auto* const bytes = reinterpret_cast<const std::byte*>(text.data());
      out.assign(bytes, bytes + text.size());
      break;
    }
    case Ask::run: {
      std::vector<std::byte> in(bytes_in(request.call, request.size));
      if (!receive_all(socket, in.data(), in.size())) return false;
      out.resize(bytes_out(request.call, request.rank, request.size));
      NcclCall call = request.call;
      call.in = in.data();
      call.out = out.data();
      reply.code = world.run(request.rank, call) ? 1 : 0;
      break;
    }
    case Ask::exchange: {
      if (!receive_all(socket, sends.data(), sends.size() * sizeof(NcclMessage)) ||
          !receive_all(socket, receives.data(), receives.size() * sizeof(NcclMessage)))
        return false;
      for (NcclMessage& message : sends) {
        buffers.emplace_back(bytes_of(message));
        if (!receive_all(socket, buffers.back().data(), buffers.back().size())) return false;
        message.data = buffers.back().data();
      }
      std::size_t all = 0;
      for (const NcclMessage& message : receives) all += bytes_of(message);
      out.resize(all);
      std::byte* to = out.data();
      for (NcclMessage& message : receives) {
        message.data = to;
        to += bytes_of(message);
      }
      reply.code = world.exchange(request.rank, sends, receives) ? 1 : 0;
      break;
    }
  }
  reply.bytes = out.size();
  return send_all(socket, &reply, sizeof reply) && send_all(socket, out.data(), out.size());
}

void serve(int socket, FindWorld find) {
  Request request;
  std::shared_ptr<NcclWorld> world;
  while (receive_all(socket, &request, sizeof request)) {
    if (!world) world = find(request.world, request.size);
    if (!answer(socket, *world, request)) break;
  }
  close(socket);
}

class RemoteRanks final : public NcclRanks {
 public:
  RemoteRanks(int calls, int questions, std::uint64_t world, int size)
      : calls_{calls}, questions_{questions}, world_(world), size_(size) {}
  ~RemoteRanks() override {
    close(calls_.socket);
    close(questions_.socket);
  }

  int size() const override { return size_; }
  void join(int rank, int device, bool may_share) override {
    Request request = make(Ask::join, rank);
    request.device = device;
    request.may_share = may_share ? 1 : 0;
    ask(questions_, request, {}, nullptr);
  }
  void leave(int rank) override { ask(questions_, make(Ask::leave, rank), {}, nullptr); }
  void abort(int rank) override {
    ask(questions_, make(Ask::abort, rank), {}, nullptr);
    std::lock_guard lock(mutex_);
    aborted_ = true;
    changed_.notify_all();
  }
  ncclResult_t state(int rank) override {
    const auto code = ask(questions_, make(Ask::state, rank), {}, nullptr);
    return code ? static_cast<ncclResult_t>(*code) : ncclRemoteError;
  }
  std::string last_error(int rank) override {
    std::vector<std::byte> text;
    if (!ask(questions_, make(Ask::last_error, rank), {}, &text))
      return "the process that has the world is gone";
    return {reinterpret_cast<const char*>(text.data()), text.size()};
  }

  bool run(int rank, const NcclCall& call) override {
    Request request = make(Ask::run, rank);
    request.call = call;
    std::vector<std::byte> out;
    const auto done = ask(calls_, request, {{call.in, bytes_in(call, size_)}}, &out);
    if (!done) return wait_for_abort();
    if (*done != 0 && !out.empty()) std::memcpy(call.out, out.data(), out.size());
    return *done != 0;
  }
  bool exchange(int rank, const std::vector<NcclMessage>& sends,
                const std::vector<NcclMessage>& receives) override {
    Request request = make(Ask::exchange, rank);
    request.sends = sends.size();
    request.receives = receives.size();
    std::vector<Part> parts{{sends.data(), sends.size() * sizeof(NcclMessage)},
                            {receives.data(), receives.size() * sizeof(NcclMessage)}};
    for (const NcclMessage& message : sends) parts.push_back({message.data, bytes_of(message)});
    std::vector<std::byte> out;
    const auto done = ask(calls_, request, parts, &out);
    if (!done) return wait_for_abort();
    const std::byte* from = out.data();
    for (const NcclMessage& message : receives) {
      if (*done != 0 && bytes_of(message) > 0) std::memcpy(message.data, from, bytes_of(message));
      from += bytes_of(message);
    }
    return *done != 0;
  }

 private:
  struct Line {
    int socket;
    std::mutex mutex{};
  };
  struct Part {
    const void* data;
    std::size_t bytes;
  };
  Request make(Ask what, int rank) const {
    Request request{.what = what};
    request.rank = rank;
    request.size = size_;
    request.world = world_;
    return request;
  }

  // Nothing: the other process is gone.
  static std::optional<std::int64_t> ask(Line& line, const Request& request, const std::vector<Part>& parts,
                                         std::vector<std::byte>* out) {
    std::lock_guard lock(line.mutex);
    if (!send_all(line.socket, &request, sizeof request)) return std::nullopt;
    for (const Part& part : parts)
      if (!send_all(line.socket, part.data, part.bytes)) return std::nullopt;
    Answer reply;
    if (!receive_all(line.socket, &reply, sizeof reply)) return std::nullopt;
    std::vector<std::byte> bytes(reply.bytes);
    if (!receive_all(line.socket, bytes.data(), bytes.size())) return std::nullopt;
    if (out != nullptr) *out = std::move(bytes);
    return reply.code;
  }

  bool wait_for_abort() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return aborted_; });
    return false;
  }

  Line calls_, questions_;
  const std::uint64_t world_;
  const int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool aborted_ = false;
};

}  // namespace

void serve_nccl(FindWorld find) {
  static std::once_flag once;
  std::call_once(once, [find] {
    sockaddr_un address;
    socklen_t length = 0;
    const int door = open_socket(getpid(), address, length);
    if (bind(door, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(door, SOMAXCONN) != 0)
      return;
    std::thread([door, find] {
      for (int caller = 0; (caller = accept4(door, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;)
        std::thread(serve, caller, find).detach();
    }).detach();
  });
}

std::shared_ptr<NcclRanks> connect_nccl(std::int64_t process, std::uint64_t number, int size) {
  int sockets[2] = {-1, -1};
  for (int& one : sockets) {
    sockaddr_un address;
    socklen_t length = 0;
    one = open_socket(process, address, length);
    if (connect(one, reinterpret_cast<sockaddr*>(&address), length) != 0) return nullptr;
  }
  return std::make_shared<RemoteRanks>(sockets[0], sockets[1], number, size);
}

}  // namespace fake_gpu
