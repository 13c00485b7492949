#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# scripts/install.sh [--with-oracles] - installs the Debian packages that are missing; scripts/lib.sh lists them.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[[ $# -eq 0 || ($# -eq 1 && $1 == --with-oracles) ]] || die "usage: scripts/install.sh [--with-oracles]"
install_packages "$@"
say "All packages are installed."
