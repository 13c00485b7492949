#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# scripts/train.sh [--ranks N] [ARGUMENTS OF train_resnet18…] - the main job from nothing: installs, builds, fetches
# CIFAR-10 and trains ResNet-18 on 4 MPI ranks. Without arguments it ends in about five minutes on two cores;
# `build/bin/train_resnet18 --help` lists what it takes. Set MPIRUN to use another launcher.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# A run that shows learning in minutes. Left out, as a group, if the user says how long to train.
LENGTH=(--epochs=1 --limit-train=8192)
# Left out one by one, where the user gives the same flag.
DEFAULTS=(--limit-test=2000 --batch-size=16 --lr=0.02 "--out=$ROOT/runs/resnet18-$(date +%Y%m%d-%H%M%S)")

ranks=4
arguments=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --ranks) [[ $# -gt 1 ]] || die "--ranks needs a number" && ranks=$2 && shift 2 ;;
    --ranks=*) ranks=${1#*=} && shift ;;
    *) arguments+=("$1") && shift ;;
  esac
done
[[ $ranks =~ ^[1-9][0-9]*$ ]] || die "--ranks needs a number of at least 1; got $ranks"

install_packages
build train_resnet18 launch
if given --help -h; then exec "$BUILD/bin/train_resnet18" --help; fi

# The program looks into $BRIGADE_DATA and the cache folder by itself. Without a network the download fails, and the
# program then says in one line that it trains on synthetic images.
if [[ -z ${BRIGADE_DATA:-} ]] && ! given --data --synthetic --cifar100; then
  "$ROOT/scripts/get_cifar10.sh" >/dev/null || true
fi

given --epochs --steps --limit-train || arguments=("${LENGTH[@]}" "${arguments[@]}")
add_defaults "${DEFAULTS[@]}"
command=("$BUILD/bin/launch" -n "$ranks" -- "$BUILD/bin/train_resnet18" "${arguments[@]}")
say "$(printf '%q ' "${command[@]}")"
exec "${command[@]}" </dev/null
