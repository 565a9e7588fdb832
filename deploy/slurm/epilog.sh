#!/bin/sh
# Epilog of a site: ends what prolog.sh started for a job on this node, and nothing else of its user's.
set -eu
folder="${SLURM_TMPDIR:-/tmp}/voxload-$SLURM_JOB_ID"
[ -f "$folder/pid" ] || exit 0
pid=$(cat "$folder/pid")
# Only where it still is what was started: numbers of processes are given again.
if tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -q -- "--socket $folder/socket"; then
    kill "$pid" 2>/dev/null || true
    waited=0
    while kill -0 "$pid" 2>/dev/null && [ "$waited" -lt 20 ]; do
        sleep 1
        waited=$((waited + 1))
    done
    kill -9 "$pid" 2>/dev/null || true
fi
rm -rf -- "$folder"
exit 0
