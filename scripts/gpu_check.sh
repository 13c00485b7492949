#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# scripts/gpu_check.sh - one command for a bare GPU machine: builds, runs everything on the device, compares with the
# CPU and with PyTorch, writes one JSON file. See --help. Read next: scripts/gpu_check.py, which does it.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'END'
scripts/gpu_check.sh [OPTIONS]
Builds for the GPU that is here, then: all device tests, compute-sanitizer (memcheck, racecheck, synccheck), parity of
a training run with the CPU, several ranks on one GPU, and bench_train against PyTorch (channels_last, bf16; plain,
compiled, CUDA graph). Installs nothing. Under 8 minutes; what was found out until then is in the JSON file also when
time runs out or a part fails.
  --out FILE      the result (default gpu_check.json)
  --seconds N     for everything (default 470)
  --only A,B      of: build, suite, sanitizer, parity, ranks, training
  --deps DIR      libraries that the machine lacks, as made by --pack
  --pack DIR      makes DIR on a Debian machine with a network: headers and libraries of what the build needs, to be
                  carried along (about 45 MB)
  --emulated      on the emulated GPU (a build with CUDA, no device needed): tries this script, proves nothing else
END
}

# The build's Debian packages, unpacked instead of installed. Static archives and documentation stay behind.
pack() {
  local to scratch packages=(libdnnl-dev libdnnl2 catch2 libcli11-dev libfmt-dev libfmt9 nlohmann-json3-dev libssl-dev
    libssl3 libxxhash-dev libxxhash0 zlib1g-dev zlib1g)
  mkdir -p "$1"
  to=$(cd "$1" && pwd)
  scratch=$(mktemp -d)
  (cd "$scratch" && apt-get -qq download "${packages[@]}") || die "apt-get could not download ${packages[*]}"
  for package in "$scratch"/*.deb; do dpkg -x "$package" "$to"; done
  rm -rf "$scratch" "$to"/usr/share/{doc,man,lintian,bash-completion}
  find "$to" -name '*.a' ! -name 'libCatch2*' -delete
  # What Debian puts into /lib belongs to the same prefix here.
  if [[ -d $to/lib ]]; then cp -a "$to/lib/." "$to/usr/lib/" && rm -rf "$to/lib"; fi
  du -sh "$to"
}

arguments=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --help | -h) usage && exit 0 ;;
    --pack) pack "${2:?--pack needs a folder}" && exit 0 ;;
    *) arguments+=("$1") ;;
  esac
  shift
done
exec python3 -u -B "$ROOT/scripts/gpu_check.py" --root "$ROOT" --build "${BRIGADE_BUILD:-$ROOT/build-gpu}" \
  "${arguments[@]}"
