"""Slabs: a box in parts that fit a budget, cut where chunks end. Pure integers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from voxload.geometry import Box


def slabs(box: Box, chunk: Sequence[int], *, most: int, axis: int = 0) -> Iterator[Box]:
    """Yield parts that cover `box`, of at most `most` voxels each or of one chunk, in C order.

    Borders lie between chunks, so that none is decoded twice; `box` may reach outside the sample.

    >>> [str(part) for part in slabs(Box((3, 0), (9, 4)), (4, 4), most=16)]
    ['[3:4, 0:4]', '[4:8, 0:4]', '[8:9, 0:4]']
    """
    if box.size <= most or axis == len(chunk):
        yield box
        return
    layer = box.size // box.shape[axis] * chunk[axis]
    thickness = max(most // layer, 1) * chunk[axis]
    begin = box.start[axis]
    while begin < box.stop[axis]:
        end = min((begin // thickness + 1) * thickness, box.stop[axis])
        part = Box((*box.start[:axis], begin, *box.start[axis + 1 :]), (*box.stop[:axis], end, *box.stop[axis + 1 :]))
        yield from slabs(part, chunk, most=most, axis=axis + 1)
        begin = end
