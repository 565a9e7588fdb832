"""bench/convert.py: a result that is not its source is found out, and a turn that fails is no figure."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

from bench.converting.memory import is_equal
from bench.converting.samples import make_cubes
from bench.converting.turn import Contender

EXTENT = 8


@pytest.mark.parametrize("stored", ["zarr", "hdf5"])
@pytest.mark.parametrize("wrong", [False, True])
def test_one_voxel_makes_it_another(stored: str, wrong: bool, tmp_path: Path) -> None:
    """The whole volume is compared, whatever wrote it."""
    source = make_cubes(tmp_path, 1, EXTENT, has_noise=True)
    with h5py.File(source / "universe00.hdf5") as file:
        volume = file["full"][()].transpose(3, 0, 1, 2)
    volume[-1, -1, -1, -1] += wrong
    result = tmp_path / "result"
    result.mkdir()
    if stored == "hdf5":
        with h5py.File(result / "universe00.h5", "w") as file:
            file["full"] = volume
    else:
        zarr.create_array(result / "universe00.zarr" / "full", data=volume)
    assert is_equal(source, result) is not wrong


def test_other_axes_and_types_are_another(tmp_path: Path) -> None:
    """Numbers that are equal do not suffice."""
    source = make_cubes(tmp_path, 1, EXTENT)
    with h5py.File(source / "universe00.hdf5") as file:
        volume = file["full"][()]
    result = tmp_path / "result"
    result.mkdir()
    for strange in (volume, volume.transpose(3, 0, 1, 2).astype(np.int32)):
        with h5py.File(result / "universe00.h5", "w") as file:
            file["full"] = strange
        assert not is_equal(source, result)


def test_a_turn_that_fails_says_so(tmp_path: Path) -> None:
    """Its own error comes with it."""
    source = make_cubes(tmp_path, 1, EXTENT)
    with pytest.raises(RuntimeError, match=r"(?s)ended with status 1.*KeyError: 'strange'"):
        Contender("nobody", "strange").run(source, tmp_path / "result", is_cold=False)
