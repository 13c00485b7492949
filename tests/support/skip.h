// SPDX-License-Identifier: MIT
// tests/support/skip.h - how a test says that this machine cannot run it. Catch2 2 has no word for it.
#pragma once

#include <string>

namespace brigade::test {

/// Prints the reason; the program then ends with kSkipCode if nothing failed, which CTest reports as skipped.
/// The test case returns right after. Use: if (!has_torch()) return skip("python3-torch is not installed");
void skip(const std::string& reason);

inline constexpr int kSkipCode = 4;  ///< SKIP_RETURN_CODE in tests/CMakeLists.txt.

}  // namespace brigade::test
