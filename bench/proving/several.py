"""Part: what only several GPUs can show: two that share a sample, and send halos to each other by NCCL."""

from __future__ import annotations

import numpy as np

from bench.engining.job import NONE, P2P, PAD, PLAIN, Way
from bench.engining.launch import worlds
from bench.engining.rounds import Trial, run_rounds
from bench.proving.engine import LIMIT, pace_of
from bench.proving.told import Setting, Teller

_ONE, _FREE, _TWO = "one process", "two ranks, messages that do not travel", "two ranks"


def prove(setting: Setting, tell: Teller) -> None:
    """Time training steps of one process, of two ranks, and of two ranks without messages, in turns."""
    pace = pace_of(setting, 256)
    trials = (
        Trial(_ONE, 1, Way(PLAIN)),
        Trial(_FREE, 2, Way(NONE, PAD), is_ddp=True),
        Trial(_TWO, 2, Way(P2P, PAD), is_ddp=True),
    )
    with worlds(pace.size, setting.device, limit=LIMIT) as running:
        found = run_rounds(running, trials, pace)
    exposed = 1 - 1 / np.array(found.ratios(_TWO, _FREE))
    tell.figures("two ranks: results that are others than one process's", len(found.wrong))
    tell.figures("two ranks: speed to one process", *found.ratios(_ONE, _TWO))
    tell.figures("two ranks: share of a step that messages take beyond one without any", *exposed)
    tell.detail("several", found.document())
