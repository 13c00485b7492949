// SPDX-License-Identifier: MIT
// core/check.h - errors a caller can act on, and the one macro that raises them.
// A message reads `op: requirement; got name value; hint`. Read next: core/dtype.h.
#pragma once

#include <concepts>
#include <stdexcept>
#include <string>
#include <string_view>

namespace brigade {

/// A mistake of the caller (shape, dtype, flag, file), found before any work is done or byte is sent.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// append_text is the one customisation point of str(): a type that wants to appear in messages
// declares an overload in its own namespace (see core/shape.h).
inline void append_text(std::string& out, std::string_view text) { out += text; }
inline void append_text(std::string& out, const char* text) { out += text; }
inline void append_text(std::string& out, const std::string& text) { out += text; }
inline void append_text(std::string& out, char c) { out += c; }
inline void append_text(std::string& out, bool b) { out += b ? "true" : "false"; }
template <std::integral T>
void append_text(std::string& out, T value) {
  out += std::to_string(value);
}
void append_text(std::string& out, double value);  ///< Shortest text that reads back as the same number.

/// Concatenates its arguments as text: `str("got ", shape, " of ", dtype)`.
template <class... Parts>
std::string str(const Parts&... parts) {
  std::string out;
  (append_text(out, parts), ...);
  return out;
}

/// Throws Error. Out of line, so that a check costs its caller one compare and one cold call.
[[noreturn]] void fail(const std::string& message);

}  // namespace brigade

/// Throws Error(str(...)) unless `condition`. Stays on in Release; the message is built only on failure.
#define BRIGADE_CHECK(condition, ...)               \
  do {                                              \
    if (!(condition)) [[unlikely]]                  \
      ::brigade::fail(::brigade::str(__VA_ARGS__)); \
  } while (false)
