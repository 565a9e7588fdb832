"""Advice: never worse than any other chunk shape it could have named, and equal to what a file would cost."""

from __future__ import annotations

from math import prod
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxload.convert.chunk_advice import LEAST_CHUNK, MOST_CHUNK, advise
from voxload.geometry import Boundary, Halo
from voxload.grid import ProcessGrid
from voxload.readers import Location, ReadCost, block_cost, open_reader


def _cost(path: Path, chunks: tuple[int, ...], grid: ProcessGrid, halo: Halo) -> float:
    """Return the decode amplification over all ranks of a real file with these chunks."""
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.zeros((2, 96, 96, 96), np.int16), chunks=(2, *chunks))
    reader = open_reader(Location(str(path), "x", axes="CDHW"))
    total, needed = ReadCost(), 0
    for rank in grid.group_ranks:
        box = grid.at(rank).block((96, 96, 96)).expand(halo)
        total += block_cost(reader, box, boundary=Boundary.PERIODIC)
        needed += 2 * box.size * 2
    reader.close()
    return total.decoded_bytes / needed


def test_advice_is_what_a_file_would_cost(tmp_path: Path) -> None:
    """The promised amplification is the one of a file with those chunks, and less than that of common ones."""
    grid, halo = ProcessGrid((2, 1, 2), 4, 0), Halo.parse(1)
    found = advise((2, 96, 96, 96), 2, grid=grid, halo=halo, boundary=Boundary.PERIODIC)
    assert found.decode_amplification == pytest.approx(_cost(tmp_path / "a.h5", found.chunks, grid, halo))
    for chunks in ((64, 64, 64), (96, 96, 96), (32, 32, 48)):
        assert found.decode_amplification <= _cost(tmp_path / "b.h5", chunks, grid, halo)


@given(
    spatial=st.tuples(*[st.integers(1, 3)] * 3),
    extents=st.tuples(*[st.integers(8, 80)] * 3),
    width=st.integers(0, 2),
    channels=st.integers(1, 4),
)
def test_without_halo_blocks_are_whole_chunks(
    spatial: tuple[int, int, int], extents: tuple[int, int, int], width: int, channels: int
) -> None:
    """Where the grid divides the volume and there is no halo nothing is decoded twice; sizes keep their bounds."""
    shape = (channels, *(extent * parts for extent, parts in zip(extents, spatial, strict=True)))
    grid = ProcessGrid(spatial, prod(spatial), 0)
    found = advise(shape, 2, grid=grid, halo=Halo.parse(width), boundary=Boundary.ZERO)
    size = channels * prod(found.chunks) * 2
    assert size <= MOST_CHUNK * 2
    assert size >= LEAST_CHUNK or size * 8 > LEAST_CHUNK or found.chunks == extents
    if width == 0 and all(extent % 16 == 0 for extent in extents):
        assert found.decode_amplification == pytest.approx(1.0)
