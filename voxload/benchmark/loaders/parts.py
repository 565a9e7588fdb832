"""Parts: what has to be read of a stored volume for a box that may leave it, and where it goes; pure.

Every chunk is needed by one part at most, so that no library decodes it twice: stretches of an axis that share a chunk
are read as one. With periodic samples a block and its halo often do.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from voxload.geometry import Boundary, Box, Piece, pieces


@dataclass(frozen=True, slots=True)
class Part:
    """One read, and where its voxels go."""

    box: Box
    """What is read, inside the volume."""
    pastes: tuple[Piece, ...]
    """What goes where: sources count from the part's own start, targets from that of the box that is wanted."""

    @property
    def is_direct(self) -> bool:
        """Whether all of it goes to one place, as it is."""
        return len(self.pastes) == 1 and self.pastes[0].source.shape == self.box.shape


def parts(box: Box, shape: Sequence[int], boundary: Boundary, *, chunks: Sequence[int]) -> tuple[Part, ...]:
    """Cut `box`, which may leave a volume of `shape`, into parts that share no chunk.

    Parameters
    ----------
    box
        What is wanted.
    shape
        Extents of the volume.
    boundary
        What lies outside; voxels of a zero boundary are in no part.
    chunks
        Extents of a chunk; ones where there are none.

    >>> [str(part.box) for part in parts(Box((-1,), (2,)), (4,), Boundary.PERIODIC, chunks=(2,))]
    ['[0:2]', '[3:4]']
    >>> [str(part.box) for part in parts(Box((-1,), (2,)), (4,), Boundary.PERIODIC, chunks=(4,))]
    ['[0:4]']
    """
    axes = [
        _stretches(Box((lo,), (hi,)), extent, boundary, chunk=chunk)
        for lo, hi, extent, chunk in zip(box.start, box.stop, shape, chunks, strict=True)
    ]
    return tuple(_product(stretches) for stretches in itertools.product(*axes))


def _stretches(wanted: Box, extent: int, boundary: Boundary, *, chunk: int) -> list[Part]:
    """Return the parts of one axis."""
    found: list[tuple[Box, list[Piece]]] = []
    for run in sorted(pieces(wanted, (extent,), boundary), key=lambda piece: piece.source.start):
        (start,), (stop,) = run.source.start, run.source.stop
        if found and start // chunk <= (found[-1][0].stop[0] - 1) // chunk:
            before, runs = found[-1]
            found[-1] = (Box(before.start, (max(before.stop[0], stop),)), [*runs, run])
        else:
            found.append((run.source, [run]))
    return [
        Part(box, tuple(Piece(run.source.relative_to(box.start), run.target) for run in runs)) for box, runs in found
    ]


def _product(stretches: Sequence[Part]) -> Part:
    """Return the part that has one stretch along each axis."""
    pastes = itertools.product(*(stretch.pastes for stretch in stretches))
    return Part(
        _joined([stretch.box for stretch in stretches]),
        tuple(Piece(_joined([one.source for one in each]), _joined([one.target for one in each])) for each in pastes),
    )


def _joined(boxes: Sequence[Box]) -> Box:
    """Return the box whose axes are those of boxes of one axis."""
    return Box(tuple(box.start[0] for box in boxes), tuple(box.stop[0] for box in boxes))
