#!/bin/sh
# Epilog of a site: ends what prolog.sh started for a job on this node, and nothing else of its user's.
set -eu
folder="${SLURM_TMPDIR:-/tmp}/voxload-$SLURM_JOB_ID"
[ -f "$folder/pid" ] || exit 0
pid=$(cat "$folder/pid")

# Only where it still is what was started: numbers of processes are given again.
is_there() {
    tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -q -- "--socket $folder/socket"
}

if is_there; then
    kill "$pid" 2>/dev/null || true
    waited=0
    while is_there && [ "$waited" -lt 20 ]; do
        sleep 1
        waited=$((waited + 1))
    done
    if is_there; then kill -9 "$pid" 2>/dev/null || true; fi
fi
rm -rf -- "$folder"
exit 0
