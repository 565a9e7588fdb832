#!/bin/bash
# Learn from the universes that are there, and from those that come: sbatch train.sh UNIVERSES [words of voxload train].
#
# A job that was killed or ran out of time goes on where its checkpoint is when it is queued again.
#SBATCH --job-name=learn
#SBATCH --output=learn.out
#SBATCH --requeue
universes=$1
shift
if [ -e learnt/checkpoint.pt ]; then
    set -- "$@" --resume
fi
exec voxload train "$universes" --follow --output learnt "$@"
