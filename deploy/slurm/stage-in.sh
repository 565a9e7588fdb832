#!/bin/sh
# First lines of a job's script: has what the job will use near before its first step, on each of its nodes.
#
#   srun --ntasks-per-node=1 deploy/slurm/stage-in.sh universes/catalog.parquet --dataset full --spatial 2,2,2 --seed 0
set -eu
"${VOXLOAD_PROGRAM:-voxload}" serve warm "$@" --hold "${VOXLOAD_HOLD:-3600}"
