#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# scripts/time_to_accuracy.sh [PERCENT] [FLAGS OF train_resnet18…] - trains ResNet-18 on CIFAR-10 in bf16 until the test
# accuracy is PERCENT (94 if not given) and says how long that took: an hour on two cores with AMX. Flags replace those
# of the recipe. Leaves a run directory and, in it, logs of every 50th step that are small enough to keep.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Crops, flips and cutout (DeVries and Taylor, 2017); evaluation takes the mean of an image and its mirror image. Two
# cycles of the learning rate (Loshchilov and Hutter, "SGDR", 2017), the second one from what the first one found.
RECIPE=(--precision=bf16 --batch-size=128 --nesterov --weight-decay=5e-4 --no-norm-decay --label-smoothing=0.1
  --cutout=8 --eval-flip --eval-every=2 --quiet)
CYCLES=("--epochs=22 --schedule=one_cycle --lr=0.1" "--epochs=10 --schedule=cosine --lr=0.05 --seed=1")

percent=94
if [[ $# -gt 0 && $1 != -* ]]; then percent=$1 && shift; fi
[[ $percent =~ ^[0-9]+([.][0-9]+)?$ ]] || die "the accuracy wanted is in percent, like 94; got $percent"
arguments=("$@")
given --out --save --init --target-accuracy && die "--out, --save, --init and --target-accuracy are set here"

install_packages
build train_resnet18
if [[ -z ${BRIGADE_DATA:-} ]] && ! given --data --synthetic; then
  "$ROOT/scripts/get_cifar10.sh" >/dev/null || die "needs CIFAR-10; give --data DIR, or see scripts/get_cifar10.sh"
fi
out=$ROOT/runs/accuracy-$percent-$(date +%Y%m%d-%H%M%S)
mkdir -p "$out"
start=$SECONDS
for i in "${!CYCLES[@]}"; do
  arguments=("$@")
  read -ra cycle <<<"${CYCLES[i]}"
  add_defaults "${RECIPE[@]}" "${cycle[@]}"
  arguments+=("--target-accuracy=$percent" "--out=$out/cycle$i" "--save=$out/cycle$i.safetensors")
  [[ $i -gt 0 ]] && arguments+=("--init=$out/cycle$((i - 1)).safetensors")
  "$BUILD/bin/train_resnet18" "${arguments[@]}"
  awk -F'[:,]' '!/^{"step"/ || $2 % 50 == 0' "$out/cycle$i/metrics.jsonl" >"$out/cycle$i.jsonl"
  if grep -q '"target_accuracy"' "$out/cycle$i.jsonl"; then
    say "$percent % after $(((SECONDS - start) / 60)) min $(((SECONDS - start) % 60)) s in all; logs: $out/cycle*.jsonl"
    exit 0
  fi
done
die "$percent % not reached; logs: $out/cycle*.jsonl"
