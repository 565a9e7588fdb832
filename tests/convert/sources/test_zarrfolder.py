"""Zarr hierarchies of any layout."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import zarr

from tests.laws.source import check_converts, check_source, coordinates, read_box
from voxload.convert.sources import Hints, Source
from voxload.convert.sources.arrays.zarr import ZarrFolder
from voxload.convert.sources.arrays.zarrcube import ZarrCube, describe_array
from voxload.convert.sources.probe import Probe
from voxload.errors import DataError, UsageError
from voxload.geometry import Box
from voxload.readers.axes import AxisOrder

Array = npt.NDArray[Any]


def _sources(path: Path, **hints: Any) -> dict[str, Source]:
    assert ZarrFolder().claims(Probe(path))
    return {source.describe().dataset: source for source in ZarrFolder().sources(Probe(path), Hints(**hints))}


def _turned(volume: Array, axes: str) -> Array:
    found = volume if "C" in axes else volume[0]
    return found.transpose([("CDHW" if "C" in axes else "DHW").index(axis) for axis in axes])


@pytest.mark.few_cases(2)
@pytest.mark.parametrize(
    ("axes", "dtype", "storage"),
    [
        ("DHW", "<f4", {"chunks": (2, 2, 3)}),
        ("WHD", ">i2", {"chunks": (3, 2, 2), "compressors": None}),
        ("CDHW", "<u2", {"chunks": (1, 2, 3, 2), "shards": (2, 4, 6, 6)}),
        ("DHWC", "<f8", {"chunks": (4, 5, 6, 1), "zarr_format": 2}),
        ("WCHD", "|u1", {"chunks": (3, 2, 2, 2), "zarr_format": 2, "order": "F"}),
    ],
)
def test_no_axis_moves_in_zarr(tmp_path: Path, axes: str, dtype: str, storage: dict[str, Any]) -> None:
    """An array of any axes, type and storage, of either format, is a volume; its names tell the axes."""
    volume = coordinates((2 if "C" in axes else 1, 4, 5, 6), dtype)
    path, is_old = tmp_path / "any.zarr", storage.get("zarr_format") == 2
    group = zarr.create_group(path, zarr_format=2 if is_old else 3)
    order: dict[str, Any] = {"config": {"write_empty_chunks": True}} | {
        k: v for k, v in storage.items() if k != "zarr_format"
    }
    names: dict[str, Any] = {} if is_old else {"dimension_names": list(axes.lower())}
    array = group.create_array("fields/density", data=_turned(volume, axes), fill_value=0, **order, **names)
    array.attrs["units"] = "K"
    if is_old:
        array.attrs["_ARRAY_DIMENSIONS"] = list(axes.lower())
    source = _sources(path)["density"]
    check_source(source, volume)
    cube = source.describe()
    assert (cube.path, cube.order.axes, cube.attributes, cube.targets) == (path, axes, {"units": "K"}, {})
    if axes in ("CDHW", "WCHD"):
        check_converts(tmp_path if is_old else path, {("any", "density"): volume})


def test_an_array_alone_is_a_volume(tmp_path: Path) -> None:
    """A folder that is one array has one volume; four axes without names are the caller's to say."""
    volume = coordinates((2, 3, 4, 5))
    path = tmp_path / "folder"
    zarr.create_array(path, data=volume.transpose(1, 2, 3, 0), chunks=(2, 2, 2, 2))
    with pytest.raises(UsageError, match=r"folder: found four axes without names, shape \(3, 4, 5, 2\).*--axes CDHW"):
        _sources(path)
    check_source(_sources(path, axes="DHWC")["volume"], volume)
    with pytest.raises(UsageError, match="no dataset 'other'"):
        _sources(path, axes="DHWC", datasets=("other",))


def test_arrays_of_one_extent_are_one_sample(tmp_path: Path) -> None:
    """Arrays of three and four axes are volumes; others are not, and extents must agree. Manifests hold targets."""
    group = zarr.create_group(
        tmp_path / "g.zarr", attributes={"voxload": {"members": [{"targets": {"omega_m": 0.25}}]}}
    )
    volume = coordinates((2, 3, 4, 5))
    group.create_array("field", data=volume)
    group.create_array("mask", data=volume[0])
    group.create_array("table", data=volume[0, 0])
    sources = _sources(tmp_path / "g.zarr", axes="CDHW")
    check_source(sources["field"], volume)
    check_source(sources["mask"], volume[:1])
    assert list(sources) == ["field", "mask"]
    assert sources["mask"].describe().targets == {"omega_m": 0.25}
    group.create_array("coarse", data=volume[0, :1])
    with pytest.raises(UsageError, match=r"coarse \(1, 4, 5\).*--dataset"):
        _sources(tmp_path / "g.zarr", axes="CDHW")
    assert list(_sources(tmp_path / "g.zarr", datasets=("coarse",))) == ["coarse"]


def test_zarr_faults(tmp_path: Path) -> None:
    """Folders without metadata, damaged metadata, no volume, and chunks that are gone or damaged are refused."""
    path = tmp_path / "g.zarr"
    path.mkdir()
    with pytest.raises(DataError, match=r"g\.zarr.*no Zarr metadata"):
        _sources(path)
    (path / "zarr.json").write_text("{")
    with pytest.raises(DataError, match=r"g\.zarr"):
        _sources(path)
    group = zarr.create_group(path, overwrite=True)
    with pytest.raises(DataError, match="no such array, expected a Zarr array of three or four axes"):
        _sources(path)
    group.create_array("a", data=coordinates((1, 4, 4, 4))[0] + 1, chunks=(2, 4, 4))
    source = _sources(path)["a"]
    (path / "a/c/1/0/0").write_bytes(b"broken")
    with pytest.raises(DataError, match=r"g\.zarr:a.*chunk \(1, 0, 0\)"):
        read_box(source, Box.whole((4, 4, 4)))
    (path / "a/c/1/0/0").unlink()
    with pytest.raises(DataError, match=r"chunk \(1, 0, 0\): no chunk"):
        read_box(source, Box.whole((4, 4, 4)))
    assert (read_box(source, Box((0, 0, 0), (2, 4, 4))) > 0).all()


def test_folders_that_are_not_zarr(tmp_path: Path) -> None:
    """A plain folder and a file are no hierarchy, whatever they are called; a file of that name is none either."""
    (tmp_path / "plain").mkdir()
    (tmp_path / "file.zarr").write_text("text")
    zarr.create_group(tmp_path / "plain/inner")
    assert [ZarrFolder().claims(Probe(tmp_path / name)) for name in ("plain", "file.zarr", "plain/inner", "none")] == [
        *(False, False, True, False),
    ]


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("storage", [{}, {"zarr_format": 2}, {"shards": (64, 64, 64)}])
def test_reading_takes_the_memory_that_it_says(tmp_path: Path, storage: dict[str, Any]) -> None:
    """Beside the array that is read into, no more is held than the description says, however large the box."""
    noise = np.frombuffer(np.random.default_rng(0).bytes(4 * 128**3), "<i4").reshape(128, 128, 128)
    zarr.create_array(tmp_path / "a", data=noise, chunks=(32, 32, 32), **storage)
    cube = describe_array(tmp_path / "a", "", AxisOrder("DHW"))
    out = np.empty((1, 128, 128, 128), "<i4")
    with ZarrCube("", cube).open() as read_into:
        read_into(Box((0, 0, 0), (1, 1, 1)), out[:, :1, :1, :1])
        tracemalloc.start()
        read_into(Box.whole((128, 128, 128)), out)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    np.testing.assert_array_equal(out[0], noise)
    assert peak < cube.scratch_bytes == 5 * noise.nbytes


def test_metadata_are_json(tmp_path: Path) -> None:
    """Attributes that JSON cannot hold are left out of the description."""
    array = zarr.create_array(tmp_path / "a", data=np.zeros((2, 2, 2)), fill_value=1)
    array.attrs["box"] = [1.0, float("inf")]
    array.attrs["unit"] = "m"
    (source,) = _sources(tmp_path / "a").values()
    assert json.loads(json.dumps(dict(source.describe().attributes), allow_nan=False)) == {"unit": "m"}
