"""Part: what the engine costs on one rank, beside plain torch; bfloat16 and channels last on a GPU."""

from __future__ import annotations

from bench.engining.launch import worlds
from bench.engining.rounds import Pace
from bench.engining.speed import ONE_RANK, one_rank
from bench.proving.told import Setting, Teller

LIMIT = 100.0
"""Seconds that one answer of a rank may take: the part's own limit is shorter than some together."""


def pace_of(setting: Setting, size: int) -> Pace:
    """Return how much is measured, of volumes of `size` on a GPU."""
    if setting.is_small:
        return Pace(32, rounds=1, steps=1)
    return Pace(size, rounds=7, steps=10, tolerance=5e-2)  # the tolerance is bfloat16's


def prove(setting: Setting, tell: Teller) -> None:
    """Time forward and backward passes in turns."""
    pace = pace_of(setting, 256)
    with worlds(pace.size, setting.device, limit=LIMIT) as running:
        outcome = one_rank(running, pace, wanted=ONE_RANK[setting.device])
    if outcome.wrong:
        raise RuntimeError("; ".join(outcome.wrong))
    model, engine = outcome.findings
    tell.figures("engine on one rank: shard(model) over plain torch", *model.figures)
    tell.figures("engine on one rank: through the engine over plain torch", *engine.figures)
    tell.detail("engine", outcome.document)
