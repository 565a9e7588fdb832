"""Unpacked voxels: what a data set hands out of stored numbers that stand for others, worked out as it does it."""

from __future__ import annotations

import numpy as np
import torch

from voxload.convert.sources.protocol import ReadInto
from voxload.data.decoding import decoded
from voxload.geometry import Box
from voxload.readers import Reader, Volume


def unpacked(reader: Reader) -> ReadInto:
    """Return a function that reads a box of a volume into an array of the type of an item."""
    info = reader.describe()

    def read_into(box: Box, out: Volume) -> None:
        stored = np.empty(out.shape, info.native_dtype)
        reader.read_into(box, stored)
        out[...] = decoded(torch.from_numpy(stored), info.packing).numpy()

    return read_into
