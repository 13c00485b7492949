#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# scripts/sanitize.sh asan|tsan [CTEST ARGUMENTS…] - builds the preset of that name and runs its tests.
#   asan  g++: AddressSanitizer with leaks, and UndefinedBehaviorSanitizer, over the whole suite
#   tsan  clang: ThreadSanitizer with Archer, which tells it of OpenMP's barriers, over tests whose ranks are threads
# `scripts/sanitize.sh asan -R "^core"` runs those whose names match. A finding fails its test. Builds a second world of
# objects: tens of minutes on two cores.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

kind=${1:-}
[[ $kind == asan || $kind == tsan ]] || die "usage: sanitize.sh asan|tsan [CTEST ARGUMENTS…]"
shift
BUILD=${BRIGADE_BUILD:-$ROOT/build-$kind}

# As the test presets of CMakePresets.json say it.
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export LSAN_OPTIONS=suppressions=$ROOT/scripts/leaks.txt:print_suppressions=0
export ASAN_OPTIONS=strict_string_checks=1:detect_leaks=1
# AddressSanitizer keeps freed memory for a while: a process grows until that is full, which the soak would not forgive.
selection=(-E "chaos, soak")
[[ $kind != tsan ]] || PACKAGES+=(clang libclang-rt-14-dev libomp-dev)
install_packages
if [[ $kind == tsan ]]; then
  archer=$(find /usr/lib/llvm-*/lib -name libarcher.so 2>/dev/null | sort -V | tail -n 1)
  [[ -n $archer ]] || die "no libarcher.so in /usr/lib/llvm-*/lib; it comes with libomp"
  export OMP_TOOL_LIBRARIES=$archer
  # libomp and oneDNN are not instrumented: what is seen inside of their calls is not ours to judge.
  export TSAN_OPTIONS=ignore_noninstrumented_modules=1:halt_on_error=1
  # Processes share no memory that TSan could see, and programs are started by name.
  selection=(-E "mpiexec|MPI|mpi-|^apps:|two hosts|^style")
fi

[[ -f $BUILD/CMakeCache.txt ]] || (cd "$ROOT" && cmake --preset "$kind" -B "$BUILD") >&2
build
mpi_environment
if [[ $kind == asan ]]; then
  # LeakSanitizer names a leak by the library around it. MPI's plug-ins would be gone by then, and leaks.txt not find
  # them: nothing is unloaded.
  printf 'int dlclose(void* library) { return library == 0; }\n' | cc -shared -fPIC -x c -o "$BUILD/libkeep.so" -
  export LD_PRELOAD=$BUILD/libkeep.so ASAN_OPTIONS=$ASAN_OPTIONS:verify_asan_link_order=0
fi
exec ctest --test-dir "$BUILD" --parallel "$(nproc)" --output-on-failure --no-tests=error --timeout 1200 \
  "${selection[@]}" "$@"
