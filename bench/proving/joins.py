"""Part: ways of joining halos and blocks at the size of one of eight blocks of 512^3, and a profile of each.

One rank computes its part of a split CosmoFlow, and receives what it asked for without a message: what is compared is
what joining costs, not what sending does.
"""

from __future__ import annotations

from statistics import median

from bench.engining.job import NONE, PAD, Way
from bench.engining.launch import World, worlds
from bench.engining.rounds import Pace
from bench.proving.engine import LIMIT, pace_of
from bench.proving.parts import JOINS
from bench.proving.told import Setting, Teller

_BLOCKS = 8
_COPYING = ("copies and fills", "the engine's operators")


def prove(setting: Setting, tell: Teller) -> None:
    """Time, weigh and profile a step of each way, in turns."""
    pace = pace_of(setting, 512)
    ways = {join: Way(NONE, join, of=_BLOCKS) for join in (PAD, *JOINS)}
    with worlds(pace.size, setting.device, limit=LIMIT) as running:
        world = running.of(1)
        seconds = _in_turns(world, ways, pace)
        saved = {join: world.ask("weigh", way)[0]["saved"] for join, way in ways.items()}
        shares = {join: world.ask("profile", way, steps=1, is_ddp=False)[0] for join, way in ways.items()}
    for join in JOINS:
        ratios = [one / padded for one, padded in zip(seconds[join], seconds[PAD], strict=True)]
        tell.figures(f"joins: time of {join} over padding", *ratios)
        tell.figures(f"joins: activations of {join} over padding", saved[join] / saved[PAD])
    padded = shares[PAD]
    copying = sum(padded[kind] for kind in _COPYING) / sum(padded.values())
    tell.figures("halos: share of a padded step that copies and the engine's operators take", copying)
    tell.detail("joins", {"seconds": {join: median(of) for join, of in seconds.items()}, "saved": saved})
    tell.detail("profile", shares)


def _in_turns(world: World, ways: dict[str, Way], pace: Pace) -> dict[str, list[float]]:
    """Return the seconds of a step of each way, one for each round."""
    words = {"is_ddp": False, "updates": False}
    for way in ways.values():
        world.ask("prepare", way, **words)
    found: dict[str, list[float]] = {join: [] for join in ways}
    for _ in range(pace.rounds):
        for join, way in ways.items():
            found[join].append(world.ask("train", way, steps=pace.steps, **words)[0]["seconds"])
    return found
