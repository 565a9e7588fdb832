"""NativeReads: a volume's chunks, fetched, decoded and pasted by one call of C."""

from __future__ import annotations

from math import prod

import numpy as np
import numpy.typing as npt

from voxload.readers import _core
from voxload.readers.decode import codecs, libraries  # noqa: F401
from voxload.readers.decode.bitshuffle import Bitshuffle
from voxload.readers.pasting.kernels import AXES
from voxload.readers.pasting.pasteplan import ChunkShape
from voxload.readers.pasting.paster import _STORED, KINDS

_FILTERS = {
    codecs.DEFLATE: 0, codecs.ZSTD: 2, codecs.LZ4_HDF5: 3, codecs.LZ4_NUMCODECS: 4, codecs.BLOSC: 5, codecs.LZF: 6,
    codecs.Fletcher32(): 8,
}


def native_volume(shape: ChunkShape, pipeline: codecs.Pipeline, grid: tuple[int, ...], offsets, sizes, masks, target):
    """Return the volume for the core, or None where it cannot decode it."""
    pad = AXES - len(shape.extents)
    strides = [0] * pad + [stride * shape.itemsize for stride in shape.strides]
    numbers = np.array([*(1,) * pad, *shape.extents, *strides, *(1,) * pad, *grid], np.uint64)
    steps = []
    for step in pipeline.steps:
        if isinstance(step, Bitshuffle):
            steps.append([7, step.itemsize, step.block, int(step.compressor)])
        elif step in _FILTERS:
            steps.append([_FILTERS[step], 0, 0, 0])
        else:
            return None
    if len(steps) > 8 or prod(shape.extents) * shape.itemsize != pipeline.nbytes:
        return None
    stored = "u1" if shape.dtype.kind == "b" else shape.dtype.str[1:]
    cast = -1 if target == shape.dtype else KINDS[target]
    volume = _core.Volume(
        numbers, shape.itemsize, pipeline.nbytes, shape.is_swapped and shape.itemsize > 1, pipeline.is_shuffled,
        np.array(steps, np.uint64).reshape(-1, 4), pipeline.shift, offsets, sizes, masks, _STORED.index(stored), cast,
    )
    return volume if volume.can_read() else None
