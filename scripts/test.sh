#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# scripts/test.sh [--with-oracles] [CTEST ARGUMENTS…] - installs what is missing, builds Release into build/ and runs
# all tests. `scripts/test.sh -R core` runs those whose names match. --with-oracles (or CI=true) also installs PyTorch,
# TensorBoard and Chromium, which some tests compare with or look through; without them these are skipped and say so.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

oracles=()
if [[ ${1:-} == --with-oracles ]]; then
  oracles=(--with-oracles)
  shift
fi
install_packages "${oracles[@]}"
build
if [[ ${#oracles[@]} -gt 0 || ${CI:-} == true ]]; then pypi_oracles; fi
mpi_environment
exec ctest --test-dir "$BUILD" --parallel "$(nproc)" --output-on-failure --no-tests=error "$@"
