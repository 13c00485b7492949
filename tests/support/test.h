// SPDX-License-Identifier: MIT
// tests/support/test.h - Catch2, version 2 or 3, under one include. Precompiled for every test program.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Matchers::ContainsSubstring;
#else
#include <catch2/catch.hpp>
/// Catch 3's name for Catch 2's matcher.
inline auto ContainsSubstring(const std::string& text) { return Catch::Matchers::Contains(text); }
#endif
