// SPDX-License-Identifier: MIT
// apps/telemetry/gzip.cpp - zlib in one call.
#include "apps/telemetry/gzip.h"

#include <zlib.h>

#include <limits>

#include "core/check.h"

namespace brigade::telemetry {

std::string gzip(std::string_view text) {
  BRIGADE_CHECK(text.size() <= std::numeric_limits<uInt>::max() / 2, "gzip: too long a text; got ",
                text.size(), " bytes");
  constexpr int kGzipHeader = 15 + 16;  // The largest window, and a gzip header instead of zlib's.
  constexpr int kMemory = 8;            // zlib's default.
  z_stream stream{};
  int code =
      deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipHeader, kMemory, Z_DEFAULT_STRATEGY);
  BRIGADE_CHECK(code == Z_OK, "deflateInit2: ", zError(code));
  std::string out(deflateBound(&stream, static_cast<uLong>(text.size())), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));  // zlib only reads it.
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  code = deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  BRIGADE_CHECK(code == Z_STREAM_END, "deflate: ", zError(code));
  return out;
}

}  // namespace brigade::telemetry
