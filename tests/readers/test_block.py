"""read_block: what it refuses, and that both spellings of a boundary mean the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from voxload.errors import UsageError
from voxload.geometry import Boundary, Box
from voxload.readers import Location, Reader, block_cost, open_reader, read_block

BOX = Box((-1, -1, -1), (3, 3, 3))


@pytest.fixture
def reader(laws: ModuleType, tmp_path: Path) -> Iterator[Reader]:
    """Open a cube of 4 x 4 x 4."""
    np.save(tmp_path / "x.npy", laws.voxels((4, 4, 4)))
    with closing(open_reader(Location(str(tmp_path / "x.npy")))) as found:
        yield found


@pytest.mark.parametrize("boundary", Boundary)
def test_a_boundary_may_be_a_word(laws: ModuleType, reader: Reader, boundary: Boundary) -> None:
    """A plain string means the boundary of that name, not the other one."""
    found = np.empty((1, 4, 4, 4), "<i2")
    read_block(reader, BOX, found, boundary=str(boundary.value))
    whole = laws.read(reader, reader.describe().whole)
    assert laws.same_bits(found, laws.expected_block(whole, BOX, boundary))


def test_an_unknown_boundary_is_refused(reader: Reader) -> None:
    """A misspelt boundary is no boundary."""
    with pytest.raises(UsageError, match="'mirror', expected 'zero' or 'periodic'"):
        read_block(reader, BOX, np.empty((1, 4, 4, 4), "<i2"), boundary="mirror")


@pytest.mark.parametrize("shape", [(1, 4, 4, 5), (1, 4, 4, 3), (2, 4, 4, 4), (4, 4, 4)])
def test_out_of_another_shape_is_refused(reader: Reader, shape: tuple[int, ...]) -> None:
    """A larger `out` would keep unfilled voxels, so it is refused as a smaller one is."""
    out = np.zeros(shape, "<i2")
    for boundary in Boundary:
        with pytest.raises(UsageError, match=r"x\.npy"):
            read_block(reader, BOX, out, boundary=boundary)
    assert not out.any()


def test_the_cost_counts_each_piece(reader: Reader) -> None:
    """Zeros cost nothing; a voxel that serves twice costs twice."""
    assert block_cost(reader, BOX, boundary="zero").stored_bytes == 3**3 * 2
    assert block_cost(reader, BOX, boundary="periodic").stored_bytes == 4**3 * 2
    assert block_cost(reader, Box((0, 0, 0), (8, 4, 4)), boundary="periodic").stored_bytes == 2 * 4**3 * 2
