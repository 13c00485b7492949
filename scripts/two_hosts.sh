#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# scripts/two_hosts.sh RATE -- COMMAND… - the command on two MPI ranks that think they are on two hosts: two network
# namespaces joined by a link of RATE (1gbit, 100mbit, …; none: as fast as it goes), one rank and one core each. --help
# says the rest. Needs root, iproute2 and Open MPI; exit code 77 where the machine does not allow it.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'HELP'
usage: scripts/two_hosts.sh RATE -- COMMAND…

Runs COMMAND as two MPI ranks on two "hosts" that are network namespaces of this machine, with MPI over TCP between them
and a link of RATE each way: 10gbit, 1gbit, 100mbit, … as tc(8) writes it, or none for an unshaped one. Rank r runs on
core r only (on core 0 if there is just one). Example:
  scripts/two_hosts.sh 1gbit -- build/bin/train_resnet18 --synthetic 2048 --steps 20 --batch-size 24

Needs root, ip and tc (Debian: iproute2) and Open MPI. Exit code: the command's; 2 for a usage error; 77, with a line
that says why, where namespaces cannot be made. Options for Open MPI come from OMPI_MCA_… variables, as always.
Set MPIRUN to use another mpirun. What it makes it removes, however it ends (short of SIGKILL).
HELP
}

skip() {
  say "two_hosts.sh: skipped: $*" >&2
  exit 77
}

wrong() {
  say "two_hosts.sh: $*; see --help" >&2
  exit 2
}

[[ ${1:-} == --help || ${1:-} == -h ]] && usage && exit 0
[[ $# -ge 3 && $2 == -- ]] || wrong "needs RATE -- COMMAND…"
rate=$1
shift 2
[[ $rate == none || $rate =~ ^[0-9]+(\.[0-9]+)?[kmgt]?bit$ ]] ||
  wrong "RATE is like 1gbit or 100mbit, or none; got $rate"

launcher=${MPIRUN:-mpirun}
[[ $EUID -eq 0 ]] || skip "needs root to make network namespaces"
for tool in ip tc unshare taskset "$launcher"; do
  command -v "$tool" >/dev/null || skip "no $tool on the PATH"
done
"$launcher" --version 2>/dev/null | grep -q 'Open MPI\|OpenRTE' || skip "$launcher is not Open MPI's"

# Names of this run alone. Addresses need not be: each pair of namespaces is a world of its own.
HOSTS=("brigade-$$-a" "brigade-$$-b")
ADDRESSES=(10.81.0.1 10.81.0.2)
scratch=$(mktemp -d)
job=""

# Ends the job in order if it still runs, and then by force: what runs in a namespace keeps it alive without a name.
clean_up() {
  local host left try
  trap - EXIT
  trap '' INT TERM HUP
  if [[ -n $job ]] && kill -TERM "$job" 2>/dev/null; then
    for ((try = 0; try < 50; ++try)); do
      kill -0 "$job" 2>/dev/null || break
      sleep 0.1
    done
  fi
  for host in "${HOSTS[@]}"; do
    left=$(ip netns pids "$host" 2>/dev/null) || continue
    # shellcheck disable=SC2086 # One process id a word.
    [[ -z $left ]] || kill -KILL $left 2>/dev/null || true
    ip netns delete "$host" || true  # The link goes with its ends.
  done
  rm -rf "$scratch"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

for host in "${HOSTS[@]}"; do
  ip netns add "$host" 2>"$scratch/why" || skip "ip netns add: $(tail -n 1 "$scratch/why")"
done
ip -n "${HOSTS[0]}" link add wire type veth peer name wire netns "${HOSTS[1]}" 2>"$scratch/why" ||
  skip "ip link add … type veth: $(tail -n 1 "$scratch/why")"
for i in 0 1; do
  ip -n "${HOSTS[i]}" address add "${ADDRESSES[i]}/24" dev wire
  ip -n "${HOSTS[i]}" link set wire up
  ip -n "${HOSTS[i]}" link set lo up
  [[ $rate == none ]] ||
    tc -n "${HOSTS[i]}" qdisc add dev wire root tbf rate "$rate" burst 256kb latency 50ms 2>"$scratch/why" ||
    skip "tc qdisc add … tbf: $(tail -n 1 "$scratch/why")"
done

# on_host HOST COMMAND…: in its namespace and under its name, by which Open MPI tells hosts apart.
cat >"$scratch/on_host" <<'EOS'
#!/bin/sh
host=$1
shift
exec ip netns exec "$host" unshare --uts sh -c 'hostname "$0" && exec "$@"' "$host" "$@"
EOS
# What mpirun takes for ssh: HOST COMMAND WORDS…, the words being shell text. Only the second host is far away.
printf '#!/bin/sh\nshift\nexec "%s/on_host" "%s" sh -c "$*"\n' "$scratch" "${HOSTS[1]}" >"$scratch/agent"
# Both hosts see all cores: without this their ranks would share the first ones.
cat >"$scratch/pinned" <<'EOS'
#!/bin/sh
exec taskset -c "$((OMPI_COMM_WORLD_RANK % $(nproc)))" "$@"
EOS
chmod +x "$scratch"/{on_host,agent,pinned}

mpi_environment
network=${ADDRESSES[0]%.*}.0/24
"$scratch/on_host" "${HOSTS[0]}" "$launcher" -np 2 --host "${ADDRESSES[0]},${ADDRESSES[1]}" --map-by node \
  --bind-to none --quiet --mca plm rsh --mca plm_rsh_agent "$scratch/agent" --mca orte_tmpdir_base "$scratch" \
  --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include "$network" --mca oob_tcp_if_include "$network" \
  "$scratch/pinned" "$@" </dev/null &
job=$!
# In the background, because a trap waits for a command in the foreground to end.
code=0
wait "$job" || code=$?
job=""
exit "$code"
