#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# scripts/compare_pytorch.sh [--quick] [ARGUMENTS…] - builds the benchmarks and trains ResNet-18 here and in PyTorch in
# turn: throughput, memory, synchronisation and all-reduce as ratios, with what is wanted beside them, and as JSON. Says
# what it skips where PyTorch or MPI is missing. All arguments: --help, or apps/bench/peers/compare.py.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

install_packages
build bench_train bench_all_reduce
exec python3 -B "$ROOT/apps/bench/peers/compare.py" --bin "$BUILD/bin" "$@"
