#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tests/support/as_torchrun.sh - as_torchrun.sh N PROGRAM …: N processes of a program in the environment that torchrun
# gives them, without torchrun. Ends with the first code that is not 0; HOSTS=2 puts every other rank on another host.
set -u
ranks=$1
shift
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1 MASTER_PORT=$port
children=()
for ((rank = 0; rank < ranks; rank++)); do
  RANK=$rank LOCAL_RANK=$rank BRIGADE_HOST=host$((rank % ${HOSTS:-1})) "$@" &
  children+=($!)
done
code=0
for child in "${children[@]}"; do
  wait "$child" || code=$((code == 0 ? $? : code))
done
exit $code
