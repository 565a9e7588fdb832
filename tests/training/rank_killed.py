"""``rank_killed.py TRAINER ROUND PLAN``: a rank of a training run; those of one trainer end behind a round, unheard."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from voxload.launch.processes import run_rank
from voxload.parallel.tournament.tournament import Tournament, Verdict
from voxload.training.worker import train

killed, last = int(sys.argv[1]), int(sys.argv[2])
play = Tournament.play


def played(self: Tournament, number: int, *arguments: object) -> Verdict:
    """Play, unless this is the trainer and the round."""
    if self.trainer == killed and number == last:
        os.kill(os.getpid(), signal.SIGKILL)
    return play(self, number, *arguments)  # type: ignore[arg-type]


Tournament.play = played  # type: ignore[assignment, method-assign]
sys.exit(run_rank(Path(__file__).name, sys.argv[3:], train))
