#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# scripts/fuzz.sh SECONDS|INPUTSx [TARGET…] - feeds the parsers of tests/fuzz/targets.h what libFuzzer makes of their
# corpus, under AddressSanitizer and UndefinedBehaviorSanitizer: each target for its share of SECONDS, without the
# build, or with as many inputs as said (5000000x). One JSON line a target; ends with 1 if something was found. Needs
# clang; builds into build-fuzz ($BRIGADE_FUZZ_BUILD).
# A finding lies in build-fuzz/findings/TARGET. Copy it to tests/fuzz/corpus/TARGET/found-WHAT, where a test replays it.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

TARGETS=(buckets cifar command_line config manifest metrics plan profile safetensors trace)
BUILD=${BRIGADE_FUZZ_BUILD:-$ROOT/build-fuzz}

[[ ${1:-} =~ ^[1-9][0-9]*x?$ ]] || die "usage: fuzz.sh SECONDS|INPUTSx [TARGET…]; targets: ${TARGETS[*]}"
amount=$1
shift
targets=("${@:-${TARGETS[@]}}")
for target in "${targets[@]}"; do
  [[ " ${TARGETS[*]} " == *" $target "* ]] || die "unknown target $target; choose from ${TARGETS[*]}"
done
PACKAGES+=(clang libclang-rt-14-dev)  # The latter is libFuzzer, by Debian 12's name.
install_packages
if [[ $amount == *x ]]; then
  limit=-runs=${amount%x}
else
  limit=-max_total_time=$(((amount + ${#targets[@]} - 1) / ${#targets[@]}))
fi

[[ -f $BUILD/CMakeCache.txt ]] || (cd "$ROOT" && cmake --preset fuzz -B "$BUILD") >&2
build "${targets[@]/#/fuzz_}" >&2

# number PATTERN FILE: the last number behind the pattern, 0 if there is none.
number() { { grep -oE "$1 *[0-9]+" "$2" || echo 0; } | tail -n 1 | grep -oE '[0-9]+$'; }

# A quarantine of freed memory, 256 MiB by default, would count as the parser's. One that fits the processor's caches
# makes the command line, which is all small objects, one and a half times as fast.
export ASAN_OPTIONS=quarantine_size_mb=1:thread_local_quarantine_size_kb=64:malloc_context_size=1
export UBSAN_OPTIONS=print_stacktrace=1
bad=0
for target in "${targets[@]}"; do
  grown=$BUILD/corpus/$target findings=$BUILD/findings/$target log=$BUILD/fuzz_$target.log
  rm -rf "$findings"
  mkdir -p "$grown" "$findings" "$BUILD/empty"
  start=$SECONDS
  # From an empty folder: names in inputs find nothing.
  (cd "$BUILD/empty" && "$BUILD/bin/fuzz_$target" "$limit" -timeout=1 -rss_limit_mb=256 \
    -max_len=8192 -entropic=0 -dict="$ROOT/tests/fuzz/words.dict" -artifact_prefix="$findings/" -print_final_stats=1 \
    -close_fd_mask=3 "$grown" "$ROOT/tests/fuzz/corpus/$target") >"$log" 2>&1 || true
  found=$(find "$findings" -type f | wc -l)
  # A program that never ran has found nothing, and says nothing of the parser either.
  inputs=$(number 'stat::number_of_executed_units:' "$log")
  [[ $found -eq 0 && $inputs -gt 0 ]] || { bad=1 && tail -n 40 "$log" >&2; }
  printf '{"target": "%s", "inputs": %d, "coverage": %d, "peak_rss_mb": %d, "findings": %d, "seconds": %d}\n' \
    "$target" "$inputs" "$(number 'cov:' "$log")" "$(number 'stat::peak_rss_mb:' "$log")" "$found" $((SECONDS - start))
done
exit $bad
