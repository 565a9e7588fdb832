#!/bin/bash
# A universe for each task of an array: simulated, then a sample of the catalogue; noted there where it could not be.
#
#     sbatch --array=0-199 universes.sh /scratch/universes        # in this folder
#     sbatch train.sh /scratch/universes --epochs 20              # meanwhile
#
# A task that is run again does no harm: what it had done is not done twice. docs/guides/ensembles.md says more.
#SBATCH --job-name=universes
#SBATCH --output=universe_%a.out
#SBATCH --requeue
universes=$1
size=${2:-32}
name=universe_$SLURM_ARRAY_TASK_ID

mkdir -p "$universes"
python ../merlin/simulate.py "$SLURM_ARRAY_TASK_ID" --size "$size" "$name.hdf5"
status=$?
if [ $status -ne 0 ]; then
    voxload catalog append "$universes" --failed \
        "$name=task $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_JOB_ID: simulate.py ended with status $status"
    exit $status
fi
voxload convert "$name.hdf5" "$universes" --append --checksums
