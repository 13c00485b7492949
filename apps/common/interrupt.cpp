// SPDX-License-Identifier: MIT
// apps/common/interrupt.cpp - see the header.
#include "apps/common/interrupt.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace brigade::apps {
namespace {

constexpr unsigned kPatienceSeconds = 30;

// A signal has no object that it could be sent to.
constinit std::atomic<int> noted{0};
constinit std::atomic<std::int64_t> noted_at_ms{0};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free,
              "handlers must not wait for locks");

// Only calls that are safe inside a handler: signal-safety(7).
void note(int signal) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const std::int64_t now_ms = std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
  int first = 0;
  if (noted.compare_exchange_strong(first, signal)) {
    noted_at_ms = now_ms;
    alarm(kPatienceSeconds);
  } else if (now_ms - noted_at_ms > 1000) {
    _exit(128 + first);
  }
}

void give_up(int) { _exit(128 + noted.load()); }

void install(int signal, void (*handler)(int)) {
  struct sigaction before {};
  if (sigaction(signal, nullptr, &before) == 0 && before.sa_handler == SIG_IGN) return;
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;  // Reads and writes under way are none of its business.
  sigaction(signal, &action, nullptr);
}

}  // namespace

void catch_interrupts() {
  install(SIGINT, note);
  install(SIGTERM, note);
  install(SIGALRM, give_up);
}

int interrupt_signal() { return noted.load(); }

}  // namespace brigade::apps
