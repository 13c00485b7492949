#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# scripts/get_cifar10.sh - puts CIFAR-10 (binary version) where the programs look for it: downloads it, or unpacks a
# local archive. Messages go to stderr; the last line of stdout is the directory to give to --data.
set -euo pipefail

readonly url=https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz
readonly official_md5=c32a1d4ab5d03f1284b67883e8d87530
readonly official_bytes=170052171
readonly folder=cifar-10-batches-bin
readonly file_bytes=30730000 # 10,000 records of 1 label byte and 3072 pixel bytes
readonly files=(data_batch_1.bin data_batch_2.bin data_batch_3.bin data_batch_4.bin data_batch_5.bin test_batch.bin)

usage() {
  cat <<TEXT
Usage: get_cifar10.sh [--dir DIR] [--from ARCHIVE]

Makes sure that DIR/$folder holds the six files of CIFAR-10, and prints DIR.
Does nothing if they are there already.

  --dir DIR       default: \$XDG_CACHE_HOME/brigade or ~/.cache/brigade, where the programs look by themselves
  --from ARCHIVE  unpack this .tar.gz or .tar.xz instead of downloading
                  $url
  --help          this text
TEXT
}

note() { echo "get_cifar10: $*" >&2; }
die() {
  note "error: $*"
  exit 1
}
usage_error() {
  note "$* (see --help)"
  exit 2
}

# What is wrong with the data in folder $1, in words; nothing if it is complete.
defects() {
  local file bytes
  for file in "${files[@]}"; do
    if [[ ! -f $1/$file ]]; then
      echo "$file is missing"
      return
    fi
    bytes=$(wc -c <"$1/$file" | tr -d ' ')
    if [[ $bytes != "$file_bytes" ]]; then
      echo "$file has $bytes bytes instead of $file_bytes"
      return
    fi
  done
}

md5_of() {
  if command -v md5sum >/dev/null; then
    md5sum <"$1" | cut -d ' ' -f 1
  else
    openssl md5 -r <"$1" | cut -d ' ' -f 1
  fi
}

# A dead network must not cost minutes: 10 seconds to connect, and 30 seconds of silence end a transfer.
download() {
  note "downloading $url"
  if command -v curl >/dev/null; then
    curl --fail --location --silent --show-error --connect-timeout 10 --speed-limit 1000 --speed-time 30 \
      --output "$1" "$url" >&2
  elif command -v wget >/dev/null; then
    wget --quiet --timeout=30 --connect-timeout=10 --tries=1 --output-document="$1" "$url" >&2
  else
    die "needs curl or wget to download; or give an archive with --from"
  fi
}

dir=
archive=
while (($#)); do
  case $1 in
    --dir | --from)
      if [[ -z ${2:-} ]]; then usage_error "$1 needs a value"; fi
      if [[ $1 == --dir ]]; then dir=$2; else archive=$2; fi
      shift 2
      ;;
    --help | -h)
      usage
      exit 0
      ;;
    *) usage_error "unknown argument \"$1\"; choose from --dir, --from, --help" ;;
  esac
done

# As the programs do (XDG base directory specification): relative values do not count.
if [[ -z $dir ]]; then
  if [[ ${XDG_CACHE_HOME:-} == /* ]]; then
    dir=$XDG_CACHE_HOME/brigade
  elif [[ ${HOME:-} == /* ]]; then
    dir=$HOME/.cache/brigade
  else
    usage_error "neither XDG_CACHE_HOME nor HOME is set; give --dir"
  fi
fi

if [[ -z $(defects "$dir/$folder") ]]; then
  note "complete already: $dir/$folder"
  (cd "$dir" && pwd)
  exit 0
fi
[[ -z $archive || -f $archive ]] || die "no such archive: $archive"

# Work beside the goal, so that the last step is a rename; whatever happens, nothing half done stays behind.
mkdir -p "$dir" || die "cannot create $dir"
work=$(mktemp -d "$dir/.get_cifar10.XXXXXX") || die "cannot write to $dir"
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

if [[ -z $archive ]]; then
  archive=$work/cifar-10-binary.tar.gz
  download "$archive" || die "download failed (no network?); give a local archive with --from"
  md5=$(md5_of "$archive")
  [[ $md5 == "$official_md5" ]] || die "downloaded file has MD5 $md5 instead of $official_md5"
elif [[ $(wc -c <"$archive" | tr -d ' ') == "$official_bytes" ]]; then
  md5=$(md5_of "$archive")
  [[ $md5 == "$official_md5" ]] || die "$archive has MD5 $md5 instead of $official_md5"
else
  note "$archive is not the official tar.gz: checking file sizes only"
fi

mkdir "$work/new"
tar --no-same-owner -xf "$archive" -C "$work/new" || die "cannot unpack $archive"
[[ -d $work/new/$folder ]] || die "$archive holds no folder $folder"
problem=$(defects "$work/new/$folder")
[[ -z $problem ]] || die "$archive is not CIFAR-10 binary: $problem"

# An incomplete older folder moves out of the way and is deleted with the work directory.
if [[ -e $dir/$folder ]]; then mv "$dir/$folder" "$work/old"; fi
mv "$work/new/$folder" "$dir/$folder"
note "unpacked: $dir/$folder"
(cd "$dir" && pwd)
