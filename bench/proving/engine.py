"""Engine: what it costs on one rank, what ways of joining cost, and what two ranks that share a sample gain.

On a GPU in bfloat16 and channels last.
"""

from __future__ import annotations

import numpy as np

from bench.engining.measurements import one_rank
from bench.engining.rounds import Pace, Trial, run_rounds
from bench.engining.world import NONE, P2P, PAD, PLAIN, Way, worlds
from bench.proving.parts import JOINS
from bench.proving.told import Setting, Teller

_LIMIT = 100.0
"""Seconds that one answer of a rank may take: the part's own limit is shorter than some together."""
_BLOCKS = 8
_COPYING = ("copies and fills", "the engine's operators")
_ONE, _FREE, _TWO = "one process", "two ranks, messages that do not travel", "two ranks"


def _pace(setting: Setting, size: int) -> Pace:
    """Return how much is measured, of volumes of `size` on a GPU."""
    if setting.is_small:
        return Pace(32, rounds=1, steps=1)
    return Pace(size, rounds=7, steps=10, tolerance=5e-2)  # the tolerance is bfloat16's


def prove_engine(setting: Setting, tell: Teller) -> None:
    """Time forward and backward passes on one rank beside plain torch, in turns."""
    pace = _pace(setting, 256)
    with worlds(pace.size, setting.device, limit=_LIMIT) as running:
        outcome = one_rank(running, pace)
    if outcome.wrong:
        raise RuntimeError("; ".join(outcome.wrong))
    model, engine = outcome.findings
    tell.figures("engine on one rank: shard(model) over plain torch", *model.figures)
    tell.figures("engine on one rank: through the engine over plain torch", *engine.figures)
    tell.detail("engine", outcome.document)


def prove_joins(setting: Setting, tell: Teller) -> None:
    """Time, weigh and profile a step of each way of joining halos, in turns, for one of eight blocks of 512^3.

    One rank computes its part of a split CosmoFlow, and receives what it asked for without a message: what is compared
    is what joining costs, not what sending does.
    """
    pace = _pace(setting, 512)
    ways = {join: Way(NONE, join, of=_BLOCKS) for join in (PAD, *JOINS)}
    with worlds(pace.size, setting.device, limit=_LIMIT) as running:
        found = run_rounds(running, [Trial(join, 1, way, updates=False) for join, way in ways.items()], pace)
        world = running.of(1)
        saved = {join: world.ask("weigh", way)[0]["saved"] for join, way in ways.items()}
        shares = {join: world.ask("profile", way, steps=1, is_ddp=False)[0] for join, way in ways.items()}
    for join in JOINS:
        tell.figures(f"joins: time of {join} over padding", *found.ratios(join, PAD))
        tell.figures(f"joins: activations of {join} over padding", saved[join] / saved[PAD])
    padded = shares[PAD]
    copying = sum(padded[kind] for kind in _COPYING) / sum(padded.values())
    tell.figures("halos: share of a padded step that copies and the engine's operators take", copying)
    tell.detail("joins", {"seconds": {join: found.median(join) for join in ways}, "saved": saved})
    tell.detail("profile", shares)


def prove_several(setting: Setting, tell: Teller) -> None:
    """Time training steps of one process, of two ranks on a GPU each, and of two without messages, in turns."""
    pace = _pace(setting, 256)
    trials = (
        Trial(_ONE, 1, Way(PLAIN)),
        Trial(_FREE, 2, Way(NONE, PAD), is_ddp=True),
        Trial(_TWO, 2, Way(P2P, PAD), is_ddp=True),
    )
    with worlds(pace.size, setting.device, limit=_LIMIT) as running:
        found = run_rounds(running, trials, pace)
    exposed = 1 - 1 / np.array(found.ratios(_TWO, _FREE))
    tell.figures("two ranks: results that are others than one process's", len(found.wrong))
    tell.figures("two ranks: speed to one process", *found.ratios(_ONE, _TWO))
    tell.figures("two ranks: share of a step that messages take beyond one without any", *exposed)
    tell.detail("several", found.document())
