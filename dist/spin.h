// SPDX-License-Identifier: MIT
// dist/spin.h - looking at memory for some microseconds before a wait becomes a sleep, which costs both sides a system
// call and the sleeper 30 us. For ranks that have a core each: dist/shm/meeting.h, dist/threads/hub.cpp.
#pragma once

namespace brigade::dist {

/// How often a rank looks, some 10 us: by so much ranks differ that reduce their slices at the same time.
inline constexpr int kLooks = 300;

/// How often a process looks whose thread waits for the call anyway, some 100 us: as long as a peer takes to wake up.
/// One that slept sooner would be asleep when the peer comes, which then would have to wake it, and so on, call by
/// call. Not for ranks that are threads: nobody keeps two of them from sharing a core, and there each would look in the
/// other's way.
inline constexpr int kPatientLooks = 3000;

/// A moment's rest for the other thread of the core, in a loop that looks at memory.
inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Whether `done()` became true while somebody looked.
template <class Done>
bool comes_soon(const Done& done, int looks = kLooks) {
  for (int i = 0; i < looks; ++i) {
    if (done()) return true;
    pause();
  }
  return false;
}

}  // namespace brigade::dist
