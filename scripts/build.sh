#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# scripts/build.sh [TARGET…] - installs what is missing and builds Release into build/ (or $BRIGADE_BUILD).
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

install_packages
build "$@"
