// SPDX-License-Identifier: MIT
// tests/support/failing_memory.h - a program that contains tests/support/failing_memory.cpp can let its n-th request
// for memory fail: operator new, aligned_alloc (small tensors) and mmap (large ones), counted together.
#pragma once

#include <cstdint>

namespace brigade::test {

/// Lets the n-th request from now on fail, on whatever thread it comes; the ones after it succeed again. 0: none.
void fail_request(std::int64_t n);
/// Whether the request that was to fail has come.
bool request_failed();
/// Objects of operator new that have not been deleted.
std::int64_t live_objects();

}  // namespace brigade::test
