#!/bin/sh
# TaskProlog of a job or of a site: starts a service on each node of a job, in the job's own cgroup, and tells the job's
# processes where it is. It ends with the job; of its memory nothing is left behind (a memfd has no name).
#
# VOXLOAD_SERVE_MEMORY (such as 64GiB) in the job's environment asks for it; without that nothing happens.
set -eu
[ -n "${VOXLOAD_SERVE_MEMORY:-}" ] || exit 0

folder="${SLURM_TMPDIR:-/tmp}/voxload-$SLURM_JOB_ID"
socket="$folder/socket"
# shellcheck disable=SC2174 # the folder above is the system's
mkdir -p -m 0700 "$folder"

# One a node: who gets the lock starts it, the others wait for its socket.
if mkdir "$folder/starting" 2>/dev/null; then
    set -- serve --memory "$VOXLOAD_SERVE_MEMORY" --socket "$socket"
    if [ -n "${VOXLOAD_SERVE_DISK:-}" ]; then
        set -- "$@" --disk "$VOXLOAD_SERVE_DISK" --disk-size "$VOXLOAD_SERVE_DISK_SIZE"
    fi
    setsid "${VOXLOAD_PROGRAM:-voxload}" "$@" >"$folder/log" 2>&1 </dev/null &
    echo $! >"$folder/pid"
fi
waited=0
while [ ! -S "$socket" ] && [ "$waited" -lt 30 ]; do
    sleep 1
    waited=$((waited + 1))
done
# What a TaskProlog prints so, Slurm puts into the environment of the task.
[ -S "$socket" ] && echo "export VOXLOAD_SERVICE=$socket"
[ -S "$socket" ] || echo "print voxload: no service on $(hostname), see $folder/log: blocks are read without it"
exit 0
