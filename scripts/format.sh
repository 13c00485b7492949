#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# scripts/format.sh [FILE…] - lays out C++ files (all by default) as the style test wants them; needs clang-format-14.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

command -v clang-format-14 >/dev/null || die "needs clang-format-14: apt-get install clang-format-14"
cd "$ROOT"
if [[ $# -eq 0 ]]; then
  mapfile -t files < <(git ls-files --cached --others --exclude-standard -- '*.h' '*.cpp' '*.cu' '*.cuh')
  set -- "${files[@]}"
fi
clang-format-14 -i --style=file "$@"
