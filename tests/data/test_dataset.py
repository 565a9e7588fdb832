"""VolumeDataset: every item equals the whole sample, sliced; wrong input is refused in one clear line."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import closing
from math import prod
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import torch
import zarr
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import voxload
from voxload.catalog.table import Catalog, Entry
from voxload.errors import DataError, NotFoundError, UsageError
from voxload.geometry import Boundary, Halo

SHAPE = (9, 10, 11)
"""Extents that no grid of two divides evenly on every axis."""
Arrays = dict[str, npt.NDArray[Any]]


def _universe(seed: int, shape: tuple[int, ...] = SHAPE) -> npt.NDArray[np.int16]:
    return np.random.default_rng(seed).integers(0, 900, (*shape, 4)).astype("<i2")


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Arrays]:
    """Five raw universes, channels last, with their parameters; and the same as (C, D, H, W) arrays."""
    folder = tmp_path_factory.mktemp("raw")
    whole: Arrays = {}
    for index in range(5):
        cube = _universe(index)
        with h5py.File(folder / f"u{index}.h5", "w") as file:
            file.create_dataset("full", data=cube, chunks=(4, 4, 4, 4), compression="gzip", shuffle=True)
            file["segmentation"] = (cube[..., 0] > 450).astype(np.uint8)
            file["unitPar"] = np.linspace(-1, 1, 4) + index
        whole[f"u{index}"] = np.moveaxis(cube, -1, 0)
    return folder, whole


def _sliced(whole: npt.NDArray[Any], grid: voxload.ProcessGrid, halo: Halo, boundary: Boundary) -> npt.NDArray[Any]:
    """Return the block with halo that plain numpy cuts out of the whole sample."""
    widths = [(0, 0), *zip(halo.low, halo.high, strict=True)]
    padded = np.pad(whole, widths, mode="constant" if boundary is Boundary.ZERO else "wrap")
    block = grid.block(whole.shape[1:])
    far = tuple(
        slice(lo, hi + before + after)
        for lo, hi, before, after in zip(block.start, block.stop, halo.low, halo.high, strict=True)
    )
    return np.asarray(padded[(slice(None), *far)])


@given(
    spatial=st.tuples(*[st.integers(1, 3)] * 3),
    halo=st.tuples(*[st.integers(0, 12)] * 3),
    boundary=st.sampled_from(Boundary),
    place=st.randoms(use_true_random=False),
)
def test_a_block_with_halo_is_what_numpy_slices(
    raw: tuple[Path, Arrays], spatial: tuple[int, int, int], halo: tuple[int, int, int], boundary: Boundary, place: Any
) -> None:
    """Any rank's block, with any halo over either boundary, equals the whole sample padded and sliced."""
    folder, whole = raw
    size = prod(spatial)
    grid = voxload.ProcessGrid(spatial, size, place.randrange(size))
    data = voxload.VolumeDataset(
        f"{folder}/*.h5", fields={"x": "full"}, axes="DHWC", grid=grid, halo=halo, boundary=boundary
    )
    index = place.randrange(5)
    (block,) = data[index]
    data.close()
    assert torch.equal(block, torch.from_numpy(_sliced(whole[f"u{index}"], grid, Halo(halo, halo), boundary).copy()))


def test_blocks_of_all_ranks_make_the_sample(raw: tuple[Path, Arrays]) -> None:
    """The blocks of a sample group, put where they belong, are the whole sample."""
    folder, whole = raw
    rebuilt = np.zeros((4, *SHAPE), np.int16)
    for rank in range(8):
        grid = voxload.ProcessGrid((2, 2, 2), 8, rank)
        data = voxload.VolumeDataset(f"{folder}/*.h5", fields={"x": "full"}, axes="DHWC", grid=grid)
        rebuilt[(slice(None), *grid.block(SHAPE).slices)] += data[2][0].numpy()
        data.close()
    assert np.array_equal(rebuilt, whole["u2"])


def test_fields_are_cut_by_the_same_box(raw: tuple[Path, Arrays]) -> None:
    """A volume and its segmentation come as blocks of the same voxels, each of its own type, targets last."""
    folder, _ = raw
    grid = voxload.ProcessGrid((1, 2, 2), 4, 3)
    paths = sorted(folder.glob("*.h5"))
    data = voxload.VolumeDataset(
        paths,
        fields={"x": "full", "labels": "segmentation"},
        axes={"x": "DHWC"},
        targets="unitPar",
        grid=grid,
        halo=1,
    )
    x, labels, targets = data[1]
    data.close()
    assert (x.dtype, labels.dtype, targets.dtype) == (torch.int16, torch.uint8, torch.float32)
    inside = (slice(None), slice(1, -1), slice(0, -1), slice(0, -1))
    assert torch.equal(labels[inside][0], (x[inside][0] > 450).to(torch.uint8))
    assert np.array_equal(targets.numpy(), (np.linspace(-1, 1, 4) + 1).astype(np.float32))


def test_ids_are_sorted_and_do_not_depend_on_the_order_given(raw: tuple[Path, Arrays]) -> None:
    """Every rank counts the samples alike, however its file system lists them."""
    folder, _ = raw
    paths = sorted(folder.glob("*.h5"))
    forward = voxload.VolumeDataset(paths, fields={"x": "full"}, axes="DHWC")
    backward = voxload.VolumeDataset(paths[::-1], fields={"x": "full"}, axes="DHWC")
    assert forward.sample_ids == backward.sample_ids == ("u0", "u1", "u2", "u3", "u4")
    assert forward.fingerprint == backward.fingerprint
    assert torch.equal(forward[3][0], backward[3][0])
    assert torch.equal(forward[-1][0], forward[4][0])
    with pytest.raises(IndexError):
        forward[5]


def test_a_catalogue_gives_paths_axes_and_targets(raw: tuple[Path, Arrays], tmp_path: Path) -> None:
    """A catalogue in another folder finds its files, and its columns become targets."""
    folder, whole = raw
    entries = [
        Entry(f"s{index}", str(folder / f"u{index}.h5"), "full", (*SHAPE, 4), "<i2", "DHWC", 1, {"a": index, "b": 0.5})
        for index in range(5)
    ]
    path = tmp_path / "catalog.parquet"
    Catalog.from_entries(entries, tmp_path, allow_outside=True).write(path)
    for source in (tmp_path, path, Catalog.read(path, allow_outside=True)):
        data = voxload.VolumeDataset(source, targets=["b", "a"], allow_outside=not isinstance(source, Catalog))
        x, y = data[3]
        data.close()
        assert np.array_equal(x.numpy(), whole["u3"])
        assert y.tolist() == [0.5, 3]


@pytest.mark.parametrize("method", ["forkserver", pytest.param("spawn", marks=pytest.mark.long)])
def test_torchs_own_loader_reads_it_with_workers(raw: tuple[Path, Arrays], method: str) -> None:
    """The data set works in started workers (test_forks.py: in forked ones), after this process has opened files."""
    folder, whole = raw
    data = voxload.VolumeDataset(f"{folder}/*.h5", fields={"x": "full"}, axes="DHWC")
    assert data[0][0].shape == (4, *SHAPE)
    with closing(data):
        loader = DataLoader(data, batch_size=2, num_workers=2, multiprocessing_context=method)
        batches = [batch[0] for batch in loader]
    assert torch.equal(torch.cat(batches), torch.from_numpy(np.stack([whole[f"u{index}"] for index in range(5)])))


def test_it_opens_nothing_until_it_is_read(tmp_path: Path) -> None:
    """Listing samples opens no volume: a broken file is reported when it is read, by its name."""
    (tmp_path / "broken.h5").write_bytes(b"no HDF5 at all")
    data = voxload.VolumeDataset(tmp_path / "broken.h5")
    assert pickle.loads(pickle.dumps(data)).sample_ids == ("broken",)  # noqa: S301 - its own bytes
    with pytest.raises(UsageError, match=r"broken\.h5: found no known header"):
        data[0]


def test_zarr_groups_are_samples(tmp_path: Path) -> None:
    """A glob of Zarr groups with one array each needs neither field names nor axes."""
    cubes = np.random.default_rng(0).integers(0, 99, (2, 4, 8, 8, 8)).astype(np.uint16)
    for index, cube in enumerate(cubes):
        group = zarr.open_group(tmp_path / f"s{index}.zarr", mode="w")
        array = group.create_array(
            "full", shape=cube.shape, chunks=(4, 4, 4, 4), dtype="u2", dimension_names=["c", "d", "h", "w"]
        )
        array[...] = cube
        targets = group.create_array("unitPar", shape=(2,), dtype="f8")
        targets[...] = [index, -index]
    data = voxload.VolumeDataset(f"{tmp_path}/*.zarr", targets="unitPar", grid=voxload.ProcessGrid((2, 1, 1), 2, 1))
    x, y = data[1]
    assert x.dtype == torch.uint16
    assert np.array_equal(x.numpy(), cubes[1][:, 4:])
    assert y.tolist() == [1, -1]


def _catalog_with(target: float) -> Callable[[Path], Any]:
    def make(folder: Path) -> voxload.VolumeDataset:
        entry = Entry("s", "u.h5", "full", (2, 2, 2), "<i2", "DHW", 1, {"a": 1.0})
        table = Catalog.from_entries([entry], folder).table
        place = table.column_names.index("a")
        return voxload.VolumeDataset(Catalog(table.set_column(place, "a", pa.array([target])), folder), targets="a")

    return make


BAD: dict[str, tuple[Callable[[Path], Any], type[Exception], str]] = {
    "missing path": (lambda p: voxload.VolumeDataset(p / "no.h5"), NotFoundError, "no such file or folder"),
    "empty glob": (lambda p: voxload.VolumeDataset(f"{p}/*.h5"), NotFoundError, "no match"),
    "empty list": (lambda _: voxload.VolumeDataset([]), UsageError, "an empty list"),
    "same file twice": (lambda p: voxload.VolumeDataset([p / "a", p / "a"]), UsageError, "twice"),
    "no fields": (lambda p: voxload.VolumeDataset([p / "a"], fields={}), UsageError, "no field"),
    "axes of no field": (lambda p: voxload.VolumeDataset([p], axes={"y": "DHW"}), UsageError, "field 'y'"),
    "unknown boundary": (lambda p: voxload.VolumeDataset([p], boundary="mirror"), UsageError, "'zero' or 'periodic'"),
    "unknown missing": (lambda p: voxload.VolumeDataset([p], missing="skip"), UsageError, "'error' or 'fill'"),
    "fields in a list": (lambda p: voxload.VolumeDataset([p], fields=["x"]), UsageError, "a mapping of one name"),  # type: ignore[arg-type] # the point
    "one number for a grid": (lambda p: voxload.VolumeDataset([p], grid=2), UsageError, "three counts"),  # type: ignore[arg-type] # the point
    "an array": (lambda _: voxload.VolumeDataset(np.zeros((2, 2))), UsageError, "type numpy.ndarray"),  # type: ignore[arg-type] # the point
    "a table of names": (lambda _: voxload.VolumeDataset({"density": 1}), UsageError, "type builtins.dict"),  # type: ignore[arg-type] # the point
    "arrays in a list": (lambda _: voxload.VolumeDataset([np.zeros(1)]), UsageError, "expected paths"),  # type: ignore[list-item] # the point
    "a slice": (lambda p: voxload.VolumeDataset([p])[0:2], UsageError, "Subset"),  # type: ignore[index] # the point
    "bad halo": (lambda p: voxload.VolumeDataset([p], halo=(1, 2)), UsageError, "one int, or three"),
    "NaN target": (_catalog_with(float("nan")), DataError, "target 'a' of sample 's': found nan"),
    "infinite target": (_catalog_with(float("inf")), DataError, "expected a finite number"),
}


@pytest.mark.parametrize("case", BAD)
def test_wrong_calls_are_refused(case: str, tmp_path: Path) -> None:
    """Each misuse raises its error, with what was found, before anything is read."""
    call, kind, words = BAD[case]
    with pytest.raises(kind, match=words):
        call(tmp_path)


def test_broken_samples_are_refused_when_read(tmp_path: Path) -> None:
    """Unknown datasets, fields of unequal shape, NaN targets and a grid that does not fit name their sample."""
    with h5py.File(tmp_path / "u.h5", "w") as file:
        file["a"] = np.zeros((4, 4, 4), "i2")
        file["b"] = np.zeros((4, 4, 5), "i2")
        file["nan"] = np.array([0.0, np.nan])
    path = tmp_path / "u.h5"
    with pytest.raises(NotFoundError, match=r"no dataset 'c', expected one of \['a', 'b'\]"):
        voxload.VolumeDataset(path, fields={"x": "c"})[0]
    with pytest.raises(DataError, match=r"sample 'u': found x \(4, 4, 4\), y \(4, 4, 5\)"):
        voxload.VolumeDataset(path, fields={"x": "a", "y": "b"})[0]
    with pytest.raises(DataError, match=r"targets \['nan'\] of sample 'u'.*found \[0\.0, nan\]"):
        voxload.VolumeDataset(path, fields={"x": "a"}, targets="nan")[0]
    with pytest.raises(NotFoundError, match="no dataset 'unitPar'"):
        voxload.VolumeDataset(path, fields={"x": "a"}, targets="unitPar")[0]
    with pytest.raises(UsageError, match="more ranks than voxels"):
        voxload.VolumeDataset(path, fields={"x": "a"}, grid=voxload.ProcessGrid((8, 1, 1), 8, 0))[0]
