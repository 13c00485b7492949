#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# scripts/test.sh [--with-oracles] [CTEST ARGUMENTS…] - installs what is missing, builds Release into build/ and runs
# all tests. `scripts/test.sh -R core` runs those whose names match. --with-oracles (or CI=true) also installs PyTorch,
# which some tests compare with; without it they say that they were skipped.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

oracles=()
if [[ ${1:-} == --with-oracles ]]; then
  oracles=(--with-oracles)
  shift
fi
install_packages "${oracles[@]}"
build
mpi_environment
exec ctest --test-dir "$BUILD" --parallel "$(nproc)" --output-on-failure --no-tests=error "$@"
