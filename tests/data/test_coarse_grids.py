"""Fields on coarser grids: every block against numpy, of every rank, through torch's loader and ours."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import voxload
from voxload.augment import Augment, Flips
from voxload.errors import DataError, UsageError
from voxload.grid import ProcessGrid

Array = npt.NDArray[Any]
COARSE = (2, 3, 4)
"""(D, H, W) of labels; volumes have so many times the ratio."""
PAD = {"zero": "constant", "periodic": "wrap"}


def _arrays(ratio: tuple[int, ...], seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    fine = tuple(extent * one for extent, one in zip(COARSE, ratio, strict=True))
    return {
        "u": rng.standard_normal((2, *fine)).astype("<f4"),
        "labels": rng.integers(0, 9, COARSE).astype("u1"),
        "edges": rng.integers(0, 99, (3, *fine)).astype("<i2"),
    }


def _written(path: Path, arrays: dict[str, Array]) -> None:
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            chunks = tuple(max(1, extent // 2) for extent in array.shape)
            file.create_dataset(name, data=array, chunks=chunks, compression="gzip")


def _cut(array: Array, start: list[int], stop: list[int], halo: list[int], boundary: str) -> Array:
    """Return a block of an array whose last three axes are spatial, halo included."""
    widths = [(0, 0)] * (array.ndim - 3) + [(one, one) for one in halo]
    padded = np.pad(array, widths, mode=PAD[boundary])  # type: ignore[call-overload] # modes by name
    slices = [slice(lo, hi + 2 * one) for lo, hi, one in zip(start, stop, halo, strict=True)]
    found: Array = padded[(..., *slices)]
    return found if found.ndim == 4 else found[None]


@pytest.mark.long
@given(
    ratio=st.tuples(*[st.integers(1, 3)] * 3),
    spatial=st.sampled_from([(1, 1, 1), (2, 1, 1), (2, 3, 1), (1, 1, 4), (2, 3, 4)]),
    halo=st.integers(0, 3),
    boundary=st.sampled_from(list(PAD)),
    data=st.data(),
)
def test_blocks_are_what_numpy_cuts(
    tmp_path_factory: pytest.TempPathFactory,
    ratio: tuple[int, int, int],
    spatial: tuple[int, int, int],
    halo: int,
    boundary: str,
    data: st.DataObject,
) -> None:
    """A coarse block lies where the fine one does, and its halo reaches as far, or to the end of the voxel."""
    arrays = _arrays(ratio)
    path = tmp_path_factory.mktemp("coarse") / "s.h5"
    _written(path, arrays)
    world = int(np.prod(spatial))
    rank = data.draw(st.integers(0, world - 1))
    grid = ProcessGrid(spatial, world, rank)
    names = data.draw(st.permutations(list(arrays)))
    made = voxload.VolumeDataset(
        path,
        fields={name: name for name in names},
        axes={"u": "CDHW", "labels": "DHW", "edges": "CDHW"},
        coarser={"labels": ratio},
        grid=grid,
        halo=halo,
        boundary=boundary,
    )
    fine = grid.block(arrays["u"].shape[1:])
    item = made[0]
    for name, block in zip(names, item, strict=True):
        ratios = list(ratio) if name == "labels" else [1, 1, 1]
        start = [lo // one for lo, one in zip(fine.start, ratios, strict=True)]
        stop = [hi // one for hi, one in zip(fine.stop, ratios, strict=True)]
        halos = [-(-halo // one) for one in ratios]
        assert np.array_equal(block.numpy(), _cut(arrays[name], start, stop, halos, boundary)), name
    assert all(one.equal(other) for one, other in zip(item, made[0], strict=True))  # as it is known by then
    made.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write five samples with labels of 2 x 1 x 3 voxels each."""
    for number in range(5):
        _written(tmp_path / f"s{number}.h5", _arrays((2, 1, 3), number))
    return tmp_path


WORDS: dict[str, Any] = {
    "fields": {"u": "u", "labels": "labels"},
    "axes": {"u": "CDHW", "labels": "DHW"},
    "coarser": {"labels": (2, 1, 3)},
}
WAYS: dict[str, dict[str, Any]] = {
    "threads": {},
    "a process": {"readers": "process"},
    "a cache": {"cache": voxload.Cache(memory=1 << 22)},
}


@pytest.mark.parametrize("way", WAYS)
def test_batches_are_those_of_torchs_loader(folder: Path, way: str) -> None:
    """Each field's batch has the shape of its own grid, as read and as kept."""
    data = voxload.VolumeDataset(f"{folder}/*.h5", halo=1, **WORDS)
    expected = list(DataLoader(data, 2))
    with closing(voxload.DataLoader(data, 2, **WAYS[way])) as loader:
        for _ in range(2):
            for found, wanted in zip(loader, expected, strict=True):
                assert [one.shape for one in found] == [one.shape for one in wanted]
                assert all(one.equal(other) for one, other in zip(found, wanted, strict=True))
    data.close()


def test_windows_in_time_have_coarse_fields(tmp_path: Path) -> None:
    """Boundary data on a coarser grid, of each step or constant, go with a window."""
    rng = np.random.default_rng(1)
    u, rain, land = rng.random((6, 2, 4, 4, 8)), rng.random((6, 2, 2, 4)), rng.random((2, 2, 4))
    with h5py.File(tmp_path / "era.h5", "w") as file:
        file["u"], file["rain"], file["land"] = u, rain, land
    words: dict[str, Any] = {
        "fields": {"u": "u", "rain": "rain", "land": "land"},
        "axes": {"u": "TCDHW", "rain": "TDHW", "land": "DHW"},
        "coarser": {"rain": 2, "land": 2},
    }
    data = voxload.VolumeDataset(tmp_path / "era.h5", window=voxload.Window(2, horizon=1), **words)
    assert len(data) == 4
    for number in range(4):
        inputs, rains, lands, target, rain_after = (part.numpy() for part in data[number])
        assert np.array_equal(inputs, u[number : number + 2])
        assert np.array_equal(rains, rain[number : number + 2, None])
        assert np.array_equal(lands, land[None])
        assert np.array_equal(target, u[number + 2 : number + 3])
        assert np.array_equal(rain_after, rain[number + 2 : number + 3, None])
    with (
        closing(voxload.DataLoader(data, cache=voxload.Cache(memory=1 << 22))) as loader,
        pytest.raises(UsageError, match="windows that do not overlap"),
    ):
        next(iter(loader))
    data.close()


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ({"coarser": {"mask": 2}}, UsageError, "field 'mask'"),
        ({"coarser": {"labels": 0}}, UsageError, "whole number of 1 or more"),
        ({"coarser": {"labels": 1.5}}, UsageError, "whole number of 1 or more"),
        ({"coarser": {"labels": (2, 2)}}, UsageError, "whole number of 1 or more"),
        ({"coarser": {"labels": 2, "u": 2}}, UsageError, "every field"),
        ({"coarser": None}, DataError, "say coarser="),
        ({"coarser": {"labels": 2}}, DataError, "of which"),
        ({"patches": voxload.Patches(2, per_sample=1)}, UsageError, "patches or augment besides"),
        ({"augment": Augment(Flips(), seed=1)}, UsageError, "patches or augment besides"),
        ({"grid": ProcessGrid((4, 1, 1), 4, 1)}, UsageError, "within a voxel"),
    ],
)
def test_what_does_not_fit_is_refused(
    folder: Path, words: dict[str, Any], error: type[Exception], message: str
) -> None:
    """Each refusal says what was found and what to do."""
    with pytest.raises(error, match=message):
        voxload.VolumeDataset(f"{folder}/*.h5", **(WORDS | words))[0]


def test_data_sets_of_other_ratios_are_told_apart(folder: Path) -> None:
    """The ratio says what an item is."""
    one = voxload.VolumeDataset(f"{folder}/*.h5", **WORDS)
    other = voxload.VolumeDataset(f"{folder}/*.h5", **(WORDS | {"coarser": {"labels": 2}}))
    assert one.fingerprint != other.fingerprint
