#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# scripts/ptxas_report.sh - what the assembler makes of the device kernels, without a GPU: registers, spills and
# accesses of 16 bytes, for compute capabilities 8.0 and 9.0. Ends with an error if a kernel spills registers to
# memory, or if a file of kernels that move memory has no 16-byte load and store. Usage: scripts/ptxas_report.sh
# [file.cu …]
set -euo pipefail
cd "$(dirname "$0")/.."

nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
[ -x "$nvcc" ] || { echo "ptxas_report: needs nvcc; set CUDA_HOME to the toolkit's folder" >&2; exit 1; }
ptxas=$(dirname "$nvcc")/ptxas
cuobjdump=$(command -v cuobjdump || true)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Kernels of these files do one element here and one there by nature.
narrow=' augment reduce '
failed=0
if [ $# -gt 0 ]; then files=("$@"); else files=(kernels/cuda/device/*.cu); fi
printf '%-18s %-5s %8s %10s %7s %12s %13s\n' file sm kernels registers spilled 'loads of 16' 'stores of 16'
for file in "${files[@]}"; do
  name=$(basename "$file" .cu)
  fmad=true
  grep -q "device/$name.cu" <(sed -n '/set(elementwise_kernels/,/)/p' kernels/CMakeLists.txt) && fmad=false
  # PTX of the older one, assembled for both.
  "$nvcc" -std=c++20 --expt-relaxed-constexpr -diag-suppress=186 -fmad=$fmad -O3 -I. -arch=compute_80 -ptx "$file" \
    -o "$folder/$name.ptx"
  loads=$(grep -cE 'ld\.global(\.nc)?\.(v4\.[usbf]32|v2\.[usbf]64)' "$folder/$name.ptx" || true)
  stores=$(grep -cE 'st\.global(\.wb)?\.(v4\.[usbf]32|v2\.[usbf]64)' "$folder/$name.ptx" || true)
  for sm in 80 90; do
    "$ptxas" -v -arch=sm_$sm "$folder/$name.ptx" -o "$folder/$name.$sm.cubin" 2> "$folder/log"
    if [ -n "$cuobjdump" ]; then
      loads=$("$cuobjdump" -sass "$folder/$name.$sm.cubin" | grep -c 'LDG.E.*128' || true)
      stores=$("$cuobjdump" -sass "$folder/$name.$sm.cubin" | grep -c 'STG.E.*128' || true)
    fi
    kernels=$(grep -c 'Compiling entry function' "$folder/log" || true)
    registers=$(grep -oE 'Used [0-9]+ registers' "$folder/log" | grep -oE '[0-9]+' | sort -n | tail -1)
    # Of f64, which nobody trains in, a spill is no concern.
    spills=$(c++filt < "$folder/log" | grep -B1 -E '[1-9][0-9]* bytes spill stores' | grep -E '(for|properties)' |
      grep -v double || true)
    spilled=$(printf '%s' "$spills" | grep -c . || true)
    printf '%-18s %-5s %8s %10s %7s %12s %13s\n' "$name" "$sm" "$kernels" "<= $registers" "$spilled" "$loads" "$stores"
    if [ "$spilled" -gt 0 ]; then
      printf '%s\n' "$spills" >&2
      failed=1
    fi
  done
  if [[ $narrow != *" $name "* ]] && { [ "$loads" -eq 0 ] || [ "$stores" -eq 0 ]; }; then
    echo "ptxas_report: $name has no 16-byte $([ "$loads" -eq 0 ] && echo load || echo store)" >&2
    failed=1
  fi
done
exit $failed
