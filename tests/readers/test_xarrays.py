"""Objects of xarray's as sources: every block is what xarray itself gives for it, whatever was done to the object."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray

import voxload
from tests.laws import reader as laws
from voxload.errors import DataError, NotFoundError, UsageError
from voxload.geometry import Box
from voxload.readers import Location, open_reader
from voxload.readers.attributes import read_attribute
from voxload.readers.registry import find_format
from voxload.readers.xarrays import XarrayName

SHAPE = (6, 12, 14, 16)
DIMS = ("time", "z", "y", "x")
VOXELS = laws.voxels(SHAPE)


def _stored(folder: Path) -> Any:
    """Return a Dataset of what lies in a Zarr hierarchy, of which nothing is read before it is asked for."""
    there = xarray.Dataset({"u": (DIMS, VOXELS), "mask": (DIMS[1:], VOXELS[0])}, {"time": np.arange(6.0)}, {"z0": 0.5})
    there.u.attrs["units"] = "m/s"
    there.to_zarr(folder / "x.zarr", mode="w", consolidated=False, encoding={"u": {"chunks": (1, 4, 8, 8)}})
    return xarray.open_dataset(folder / "x.zarr", engine="zarr", consolidated=False)


MADE: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda data: data,
    "in memory": lambda data: data.load(),
    "dask": lambda data: data.chunk({"time": 2, "z": 5}),
    "turned round": lambda data: data.isel(time=slice(None, None, -1), y=slice(None, None, -1)),
    "every other": lambda data: data.isel(time=slice(1, None, 2), x=slice(3, 12)),
    "transposed": lambda data: data.transpose("x", "time", "y", "z"),
    "worked out": lambda data: data * 2 + 1,
    "decoded": lambda data: data.astype("f4").where(data.u != data.u.max()),
    "tree": lambda data: xarray.DataTree.from_dict({"/": data, "/deep": data + 1}),
}


@pytest.mark.few_cases(4)
@pytest.mark.parametrize("made", MADE)
def test_an_object_keeps_the_laws(tmp_path: Path, made: str) -> None:
    """Boxes of every kind are those of the variable that xarray shows."""
    held = MADE[made](_stored(tmp_path))
    for name in ("u", "deep/u") if made == "tree" else ("u",):
        meant = held[name].transpose(*DIMS).compute(scheduler="synchronous").values
        with closing(open_reader(Location(XarrayName(held), name), missing="fill")) as reader:
            assert sorted(reader.describe().axes) == sorted("TDHW")
            laws.check_reader(reader, meant)


def test_items_are_those_of_the_object(tmp_path: Path) -> None:
    """A data set of it has windows, halos, blocks, tiers and readers of a process of its own, as any other."""
    held = MADE["turned round"](_stored(tmp_path))
    meant = held.u.values
    words: dict[str, Any] = {"fields": {"u": "u", "mask": "mask"}, "axes": {"u": "TDHW"}, "missing": "fill"}
    data = voxload.VolumeDataset(held, **words, window=voxload.Window(2))
    for more in ({}, {"cache": voxload.Cache(memory="8MiB")}, {"readers": "process"}, {"num_workers": 2}):
        with closing(voxload.DataLoader(data, **more)) as loader:
            for _ in range(2):
                count = 0
                for step, (u, mask) in enumerate(loader):
                    assert np.array_equal(u[0, :, 0].numpy(), meant[step : step + 2])
                    assert np.array_equal(mask[0, 0].numpy(), held["mask"].values)
                    count += 1
                assert count == SHAPE[0] - 1
    data.close()
    for rank, block in enumerate((slice(0, 6), slice(6, 12))):
        data = voxload.VolumeDataset(held, **words, halo=(0, 1, 0), grid=voxload.ProcessGrid((2, 1, 1), 2, rank))
        u, mask = data[1]
        assert np.array_equal(u[0, :, 1:-1].numpy(), meant[1, block])
        assert np.array_equal(mask[0, :, 1:-1].numpy(), held["mask"].values[block])
        data.close()


def test_the_only_volume_needs_no_name() -> None:
    """A DataArray, and a Dataset of one volume; of several one is to be named."""
    one = xarray.DataArray(VOXELS[0], dims=DIMS[1:])
    for held in (one, xarray.Dataset({"a": one, "line": ("x", np.arange(16.0))})):
        data = voxload.VolumeDataset(held, missing="fill")
        (item,) = data[0]
        assert torch.equal(item[0], torch.from_numpy(VOXELS[0]))
    two = xarray.Dataset({"a": one, "b": one})
    with pytest.raises(UsageError, match="2 variables of three or four axes"):
        voxload.VolumeDataset(two, missing="fill")[0]
    with pytest.raises(NotFoundError, match="no variable 'c'"):
        voxload.VolumeDataset(two, fields={"x": "c"}, missing="fill")[0]


def test_unwritten_voxels_cannot_be_told(tmp_path: Path) -> None:
    """By default they are errors, which xarray does not see: the object is refused, and the path reads the same."""
    held = _stored(tmp_path)
    with pytest.raises(UsageError, match=r"never written.*missing='fill'"):
        voxload.VolumeDataset(held, fields={"x": "mask"})[0]
    (item,) = voxload.VolumeDataset(tmp_path / "x.zarr", fields={"x": "mask"})[0]
    assert torch.equal(item[0], torch.from_numpy(VOXELS[0]))


def test_objects_that_look_alike_are_told_apart() -> None:
    """Their values differ: each name has its own, here and in other processes; a name alone has none."""
    alike = [xarray.Dataset({"a": (DIMS[1:], np.full((2, 2, 2), number))}) for number in range(3)]
    names = [XarrayName(one) for one in alike]
    assert len(set(names)) == 3
    assert [XarrayName(one) for one in alike] == names
    sent = pickle.loads(pickle.dumps(names))  # noqa: S301 - our own
    assert sent == names
    for number, name in enumerate(sent):
        with closing(open_reader(Location(name, "a"), missing="fill")) as reader:
            assert laws.read(reader, Box.whole((2, 2, 2))).max() == number
    several = voxload.VolumeDataset(alike, fields={"x": "a"}, missing="fill")
    assert sorted(int(several[number][0].max()) for number in range(3)) == [0, 1, 2]
    with pytest.raises(UsageError, match="without the object"):
        open_reader(Location(str(names[0]), "a"), missing="fill")


def test_what_an_object_says_besides(tmp_path: Path) -> None:
    """Vectors are variables or coordinates, attributes those of the object, its groups and variables."""
    held = MADE["tree"](_stored(tmp_path))
    name = XarrayName(held)
    assert find_format(name).read_vector(name, "time").tolist() == list(range(6))
    assert read_attribute(name, "@z0") == 0.5
    assert read_attribute(name, "deep@z0") == 0.5
    assert read_attribute(name, "deep/u@units") == "m/s"
    for absent in ("@absent", "deep@absent", "absent@z0"):
        with pytest.raises(NotFoundError, match="absent"):
            read_attribute(name, absent)
    with pytest.raises(NotFoundError, match="absent"):
        find_format(name).read_vector(name, "absent")
    data = voxload.VolumeDataset(
        held, fields={"u": "u"}, axes="TDHW", missing="fill", columns=["time", "u@units"], window=voxload.Window(2)
    )
    _, time, units = data[3]
    assert (time.tolist(), units) == ([3.0, 4.0], "m/s")


def test_what_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """Dates, axes without names that are known, and what fails under xarray."""
    odd = xarray.Dataset(
        {
            "dates": (DIMS[1:], np.zeros((2, 2, 2), "M8[ns]")),
            "unnamed": (("a", "b", "c", "d"), np.zeros((2, 2, 2, 2))),
        }
    )
    for name in odd:
        with pytest.raises(UsageError):
            open_reader(Location(XarrayName(odd), str(name)), missing="fill")
    held = _stored(tmp_path)
    for chunk in (tmp_path / "x.zarr" / "u" / "c").rglob("*"):
        if chunk.is_file():
            chunk.write_bytes(b"damage")
    reader = open_reader(Location(XarrayName(held), "u"), missing="fill")
    with pytest.raises(DataError):
        laws.read(reader, Box.whole(SHAPE[1:]))
    reader.close()
    with pytest.raises(UsageError, match="closed"):
        laws.read(reader, Box.whole(SHAPE[1:]))
