#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# scripts/chaos.sh [OPTIONS] kill|launcher|term|stop|nan|soak|all - breaks small jobs at random moments and says what
# became of the rest: chaos.py has the campaigns, chaos_job.py the jobs and the census. --help lists the options.
exec python3 -B "$(dirname "${BASH_SOURCE[0]}")/chaos.py" "$@"
