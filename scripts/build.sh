#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# scripts/build.sh [TARGET…] - installs what is missing and builds Release into build/ (or $BRIGADE_BUILD): the targets
# named, or all, tests included.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if [[ ${1:-} == -* ]]; then
  sed -n '3,4s/^# //p' "${BASH_SOURCE[0]}"
  exit $([[ $1 == --help || $1 == -h ]] && echo 0 || echo 2)
fi

install_packages
build "$@"
