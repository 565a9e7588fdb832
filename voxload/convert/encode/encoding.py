"""Encode: a chunk of a tile's voxels, gathered, counted and compressed."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from voxload.convert.encode.deinterleave import can_deinterleave, deinterleave_channels
from voxload.convert.encode.statistics import Counts, count_channels
from voxload.convert.manifest import Manifest
from voxload.convert.storage import STORAGES
from voxload.convert.storage.compression import Parts
from voxload.convert.storage.protocol import Place
from voxload.data.transpose import copy_turned
from voxload.readers.protocol import Volume


def gather_voxels(chunk: Volume, voxels: Volume) -> None:
    """Copy ``(C, d, h, w)`` voxels of any strides into a writable view of the same shape and type.

    Safe to call from many threads at once.
    """
    if can_deinterleave(chunk, voxels):
        deinterleave_channels(chunk, voxels)
    elif voxels.strides[3] == voxels.itemsize or voxels.shape[3] == 1:
        np.copyto(chunk, voxels)
    else:
        copy_turned(chunk, voxels)


@dataclass(frozen=True, slots=True)
class Encoded:
    """What became of one chunk of voxels of a tile."""

    place: Place
    """Its place in the grid of chunks."""
    data: Parts
    """As it is stored."""
    channels: list[Counts]
    """What its voxels are like, channel by channel."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One chunk that is to be made."""

    voxels: Volume
    """Its voxels in the tile."""
    place: Place
    """Its place in the grid of chunks."""


class Encode:
    """Makes chunks of a tile's voxels; called by many threads at once, each with a buffer of its own."""

    def __init__(self, manifest: Manifest) -> None:
        self._chunks = manifest.chunks
        self._dtype = np.dtype(manifest.dtype)
        self._encoder = STORAGES[manifest.format](manifest).encoder

    def __call__(self, pieces: Sequence[Piece]) -> list[Encoded]:
        """Encode some chunks, one after the other."""
        return [self._encode(piece) for piece in pieces]

    def _encode(self, piece: Piece) -> Encoded:
        inside = chunk = piece.voxels
        if chunk.shape != self._chunks or not chunk.flags.c_contiguous:
            chunk = _buffer(self._chunks, self._dtype)
            inside = chunk[tuple(slice(extent) for extent in inside.shape)]
            if inside.shape != chunk.shape:
                chunk[:] = 0  # beyond the volume's border
            gather_voxels(inside, piece.voxels)
        return Encoded(piece.place, self._encoder(chunk), count_channels(inside))


_LOCAL = threading.local()


def _buffer(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Volume:
    """Return this thread's chunk, whose voxels are those of the chunk before."""
    found: Mapping[str, Volume] = _LOCAL.__dict__
    chunk = found.get("chunk")
    if chunk is None or chunk.shape != shape or chunk.dtype != dtype:
        chunk = np.empty(shape, dtype)
        _LOCAL.chunk = chunk
    return chunk
