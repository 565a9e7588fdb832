"""Swap: a tensor cut along one dimension becomes one that is cut along another; pure integer arithmetic.

Each rank of a line keeps, of what it has, the part that is its own in the new cut, and sends every other rank that
rank's part (an all-to-all). Positions are those of blocks laid out flat, rows of the new dimension outermost.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from voxload.engine.arithmetic.axis_plan import Part, Run, numbered


@lru_cache(maxsize=4096)
def swap_part(axis: int, place: int, *, source: tuple[int, ...], target: tuple[int, ...], width: int) -> Part:
    """Return the part of the rank at `place` of a line, for blocks that are flat.

    Before, each rank has ``(target[-1], its span of source, width)``, row-major. Afterwards, it has the pieces
    ``(its span of target, span of source of a rank, width)`` of all ranks, one behind the other in their order.

    Parameters
    ----------
    axis
        Axis of the grid along which the line lies.
    place
        The rank's place on it.
    source, target
        Bounds of blocks along the dimension that was cut, and along the one that will be.
    width
        Elements of a position of both.
    """
    places = range(len(source) - 1)
    sent = [_run(place, user, source=source, target=target, width=width) for user in places]
    taken = [_run(owner, place, source=source, target=target, width=width) for owner in places]
    rows = target[place + 1] - target[place]
    return numbered(
        Part(
            axis=axis,
            owned=target[-1] * (source[place + 1] - source[place]) * width,
            needed=rows * source[-1] * width,
            here=tuple(run for run in taken[place : place + 1] if run.length),
            outgoing=tuple((run.user, (run,)) for run in sent if run.length and run.user != place),
            incoming=tuple((run.owner, (run,)) for run in taken if run.length and run.owner != place),
            gaps=(),
            dim=0,
        )
    )


def _run(owner: int, user: int, *, source: Sequence[int], target: Sequence[int], width: int) -> Run:
    """Return what one rank has that another one, or the same, is to have."""
    own = (source[owner + 1] - source[owner]) * width
    rows = target[user + 1] - target[user]
    return Run(owner, user, target[user] * own, rows * source[owner] * width, rows * own)
