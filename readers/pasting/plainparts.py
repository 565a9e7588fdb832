"""Parts of a file in which voxels lie as they are, that a read of boxes asks for; pure.

Either runs, which are read to where they belong, or spans, from which rows are pasted. Rows that lie close together are
one span, read with what lies between them (data sieving; see `flat.contiguous`, which asks over a network). Here the
bytes are in the page cache most often, so that a gap costs its copying, and a request a call of the system.
"""

from __future__ import annotations

from itertools import product
from math import prod
from operator import mul

import numpy as np
import numpy.typing as npt

from voxload.readers.pasting.kernels import AXES, EXTENT, FIRST, SOURCE_STRIDE, STOP, TARGET, TARGET_STRIDE, Table

_SHORTEST_RUN = 2**12
"""Bytes of a request: shorter ones take longer to ask for than to copy."""
_GAP_BYTES = 2**13
"""Unwanted bytes that are read along to spare a request: about as many as are copied in the time of one."""
_SPAN_BYTES = 2**18
"""Of a span: what is pasted from it is in the processor's cache still."""
_MOST_PARTS = 2**11
"""Of a read: more are not worth to be remembered."""
_MOST_READ = 16
"""Bytes that are read for each one that is wanted."""
Numbers = npt.NDArray[np.int64]


def runs_of(rows: Table, width: int) -> Numbers | None:
    """Return ``struct run`` of each run of bytes that lies in one piece in both; None where they are short or many.

    Parameters
    ----------
    rows
        A plan, in which FIRST and STOP count from the file's first byte.
    width
        Bytes of a voxel.
    """
    found: list[tuple[int, int, int]] = []
    for row in rows.astype(np.int64).tolist():
        extents, source, target = row[EXTENT:][:AXES], row[SOURCE_STRIDE:][:AXES], row[TARGET_STRIDE:][:AXES]
        axis, length = AXES, width
        while axis and (extents[axis - 1] == 1 or source[axis - 1] == target[axis - 1] == length):
            axis -= 1
            length *= extents[axis]
        count = prod(extents[:axis])
        if count > 1 and (length < _SHORTEST_RUN or count + len(found) > _MOST_PARTS):
            return None
        for place in product(*map(range, extents[:axis])):
            offset = row[FIRST] + sum(map(mul, place, source))
            found.append((offset, row[TARGET] + sum(map(mul, place, target)), length))
    return np.array(found, np.int64)


def spans_of(rows: Table, width: int) -> tuple[Numbers, Table] | None:
    """Return ``struct sieved_span`` of each span, and all rows in order; None where they are many, or mostly gaps.

    Takes what `runs_of` does.
    """
    counts = [_steps(row, width) for row in rows.astype(np.int64).tolist()]
    if sum(prod(-(-extent // step) for extent, step in pairs) for pairs in counts) > _MOST_PARTS:
        return None
    parts = np.concatenate([_parted(row, pairs, width) for row, pairs in zip(rows, counts, strict=True)])
    parts = parts[np.argsort(parts[:, FIRST], kind="stable")]
    spans: list[list[int]] = []
    for number, (first, stop) in enumerate(parts[:, FIRST : STOP + 1].tolist()):
        offset, length = spans[-1][:2] if spans else (0, 0)
        reach = max(offset + length, stop)
        if spans and first - (offset + length) <= _GAP_BYTES and reach - offset <= _SPAN_BYTES:
            spans[-1][1], spans[-1][3] = reach - offset, number + 1
        else:
            spans.append([first, stop - first, number, number + 1])
    found = np.array(spans, np.int64)
    wanted = int(rows[:, EXTENT : EXTENT + AXES].prod(1).sum()) * width
    if found[:, 1].sum() > max(_MOST_READ * wanted, _SPAN_BYTES):
        return None
    origins = np.repeat(found[:, 0], found[:, 3] - found[:, 2]).astype(np.uint64)
    parts[:, FIRST] -= origins
    parts[:, STOP] -= origins
    return found, parts


def _steps(row: list[int], width: int) -> list[tuple[int, int]]:
    """Return a row's extents, each with how many of its indices a part takes.

    All, from the fastest axis on, as long as little lies between two indices and the whole is no more than a span.
    """
    extents, strides = row[EXTENT:][:AXES], row[SOURCE_STRIDE:][:AXES]
    steps = [1] * AXES
    length = width
    for axis in sorted((axis for axis in range(AXES) if extents[axis] > 1), key=lambda axis: strides[axis]):
        if strides[axis] - length > _GAP_BYTES:
            break
        whole = (extents[axis] - 1) * strides[axis] + length
        if whole > _SPAN_BYTES:
            steps[axis] = max(1, (_SPAN_BYTES - length) // max(1, strides[axis]) + 1)
            break
        steps[axis], length = extents[axis], whole
    return list(zip(extents, steps, strict=True))


def _parted(row: npt.NDArray[np.uint64], pairs: list[tuple[int, int]], width: int) -> Table:
    """Return the parts of a row of a plan."""
    extents, steps = np.array(pairs, np.uint64).T
    places = np.indices([-(-extent // step) for extent, step in pairs]).reshape(AXES, -1).T.astype(np.uint64) * steps
    parts = np.repeat(row[np.newaxis], len(places), 0)
    parts[:, EXTENT : EXTENT + AXES] = np.minimum(extents - places, steps)
    source = row[SOURCE_STRIDE : SOURCE_STRIDE + AXES]
    parts[:, FIRST] += (places * source).sum(1)
    parts[:, TARGET] += (places * row[TARGET_STRIDE : TARGET_STRIDE + AXES]).sum(1)
    parts[:, STOP] = parts[:, FIRST] + ((parts[:, EXTENT : EXTENT + AXES] - np.uint64(1)) * source).sum(1)
    parts[:, STOP] += np.uint64(width)
    return parts
