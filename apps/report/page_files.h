// SPDX-License-Identifier: MIT
// apps/report/page_files.h - the files of apps/report/page/ as the build found them (apps/report/embed.cmake), so that
// the program needs none of them beside it.
#pragma once

#include <span>
#include <string_view>

namespace brigade::report {

extern const std::string_view kPageHtml;                      ///< page.html, with marks where the rest goes.
extern const std::string_view kPageStyle;                     ///< page.css
extern const std::span<const std::string_view> kPageScripts;  ///< The .js files, in the order they must run.

}  // namespace brigade::report
