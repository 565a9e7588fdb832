#!/bin/bash
# Trains on the nodes of an MPI job: mpiexec starts the ranks, and they meet by mpi4py (pip install "voxload[mpi]").
#
#   RANKS=8 deploy/mpi/train.sh universes/ run --spatial 2,2,1 --epochs 50
#   MPIEXEC="mpiexec -hostfile hosts -ppn 4" RANKS=8 deploy/mpi/train.sh ...                  # MPICH, Intel MPI
#   MPIEXEC="mpirun --hostfile hosts --map-by ppr:4:node" RANKS=8 deploy/mpi/train.sh ...     # Open MPI
#
# mpi4py has to be built for the MPI that launches. The same call goes on from the run's checkpoint.
set -euo pipefail
data=$1 output=$2
shift 2
read -ra launcher <<<"${MPIEXEC:-mpiexec}"
unset MASTER_ADDR MASTER_PORT # with both, ranks would meet there

# A folder of the job's own on each node's disk, removed at the end by one process a node or more.
cache="${CACHE:-${TMPDIR:-/tmp}}/voxload-cache-${PBS_JOBID:-$$}"
# shellcheck disable=SC2317,SC2329 # called by the trap
clean() { "${launcher[@]}" -n "$RANKS" rm -rf -- "$cache" || true; }
trap clean EXIT

resume=()
if [ -e "$output/checkpoint.pt" ]; then resume=(--resume); fi

"${launcher[@]}" -n "$RANKS" "${VOXLOAD_PROGRAM:-voxload}" train "$data" --output "$output" "${resume[@]}" \
    --checkpoint-every 100 --device cuda --disk "$cache" --disk-size 400GiB "$@" &
job=$!

# A batch system's TERM ends the ranks, and the folder is removed all the same.
# shellcheck disable=SC2317,SC2329 # called by the trap
stop() { kill -TERM "$job" 2>/dev/null || true; }
trap stop USR1 TERM INT
status=0
wait "$job" || status=$?
while kill -0 "$job" 2>/dev/null; do
    status=0
    wait "$job" || status=$?
done
exit "$status"
