"""Every HDF5 filter, type and layout, natively: compared with what was written, with h5py, and with pyfive.

pyfive shares no code with libhdf5; it knows the chunk index of the first version, deflate, shuffle and fletcher32, and
no user block.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pyfive
import pytest

from tests.support.examples import IS_THOROUGH
from voxload.readers import Location, open_reader

hdf5plugin = pytest.importorskip("hdf5plugin")

pytestmark = pytest.mark.usefixtures("no_leaks")

FILTERS: dict[str, dict[str, Any]] = {
    "none": {},
    "deflate": {"compression": "gzip"},
    "lzf": {"compression": "lzf"},
    "szip nn": {"compression": "szip"},
    "szip ec": {"compression": "szip", "compression_opts": ("ec", 16)},
    "blosc lz4": dict(hdf5plugin.Blosc(cname="lz4")),
    "blosc zstd bit": dict(hdf5plugin.Blosc(cname="zstd", shuffle=hdf5plugin.Blosc.BITSHUFFLE)),
    "blosc2 lz4": dict(hdf5plugin.Blosc2(cname="lz4")),
    "blosc2 zstd": dict(hdf5plugin.Blosc2(cname="zstd", filters=hdf5plugin.Blosc2.BITSHUFFLE)),
    "blosc2 zlib": dict(hdf5plugin.Blosc2(cname="zlib", filters=hdf5plugin.Blosc2.NOFILTER)),
    "lz4": dict(hdf5plugin.LZ4()),
    "lz4 blocks": dict(hdf5plugin.LZ4(nbytes=64)),
    "zstd": dict(hdf5plugin.Zstd()),
    "bitshuffle": dict(hdf5plugin.Bitshuffle(cname="none")),
    "bitshuffle lz4": dict(hdf5plugin.Bitshuffle()),
    "bitshuffle lz4 blocks": dict(hdf5plugin.Bitshuffle(nelems=16)),
    "bitshuffle zstd": dict(hdf5plugin.Bitshuffle(cname="zstd")),
}
"""Name of a filter to the options of a dataset."""
EXTRAS: tuple[dict[str, Any], ...] = (
    {},
    {"shuffle": True},
    {"fletcher32": True},
    {"shuffle": True, "fletcher32": True},
)
TYPES = ("<u1", "<i2", "<u2", "<i4", "<f4", "<f8", "<f2", ">i2", ">f4", ">u8")
SHAPE = (9, 8, 7)
_STEP = 3
"""One of so many pairs of a type and an extra is tried in `make test`; it has no divisor of either's number."""
PYFIVE_FILTERS = ("none", "deflate")


@dataclass(frozen=True)
class Storage:
    """How a file is made."""

    chunks: tuple[int, ...]
    """Extents of a chunk."""
    file: dict[str, Any] = field(default_factory=dict)
    """Options of the file."""
    dataset: dict[str, Any] = field(default_factory=dict)
    """Options of the dataset."""

    @property
    def is_early(self) -> bool:
        """Whether pyfive finds the chunks: by the index of the first version, and without a user block."""
        return not self.file


STORAGE = {
    "edges": Storage((4, 4, 4)),
    "odd": Storage((5, 3, 7)),
    "one chunk": Storage(SHAPE, {"libver": "latest"}),
    "fixed array": Storage((4, 4, 4), {"libver": "latest"}),
    "extensible array": Storage((4, 4, 4), {"libver": "latest"}, {"maxshape": (None, 8, 7)}),
    "B-tree 2": Storage((4, 4, 4), {"libver": "latest"}, {"maxshape": (None, None, 7)}),
    "user block": Storage((4, 4, 4), {"userblock_size": 1024}),
}
"""Name to layout and index."""


def _kinds(dtype: str) -> Iterator[npt.NDArray[Any]]:
    """Yield arrays that compress well, not at all, and to runs of one value."""
    rng = np.random.default_rng(3)
    yield rng.poisson(2, SHAPE).astype(dtype)
    yield np.frombuffer(rng.bytes(int(np.prod(SHAPE)) * np.dtype(dtype).itemsize), dtype).reshape(SHAPE)
    yield np.zeros(SHAPE, dtype)


def _write(path: Path, stored: npt.NDArray[Any], storage: Storage, options: dict[str, Any]) -> None:
    with h5py.File(path, "w", **storage.file) as file:
        file.create_dataset("x", data=stored, dtype=stored.dtype, chunks=storage.chunks, **storage.dataset, **options)


def _native(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("=")))


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("name", FILTERS)
def test_every_filter_type_and_layout_is_read_natively(laws: ModuleType, tmp_path: Path, name: str) -> None:
    """Each filter alone, with shuffle, with fletcher32 and with both, of every type; indices and values take turns."""
    storages, kinds = itertools.cycle(STORAGE.values()), itertools.cycle(range(3))
    path = tmp_path / "x.h5"
    for dtype, extra in list(itertools.product(TYPES, EXTRAS))[:: 1 if IS_THOROUGH else _STEP]:
        storage, stored = next(storages), list(_kinds(dtype))[next(kinds)]
        _write(path, stored, storage, FILTERS[name] | extra)
        case = (name, dtype, extra, storage)
        with h5py.File(path) as file:
            assert laws.same_bits(_native(file["x"][()]), _native(stored)), case
        if name in PYFIVE_FILTERS and storage.is_early:
            with pyfive.File(path) as plain:
                assert laws.same_bits(_native(plain["x"][()]), _native(stored)), case
        reader = open_reader(Location(str(path), "x"))
        assert reader.describe().route == "native", case
        laws.check_some_boxes(reader, _native(stored)[np.newaxis])
        reader.close()
        path.unlink()


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("storage", STORAGE)
@pytest.mark.parametrize("name", ["szip nn", "blosc2 lz4", "bitshuffle lz4", "bitshuffle zstd", "lz4 blocks"])
def test_filters_keep_all_laws_in_every_layout(laws: ModuleType, tmp_path: Path, name: str, storage: str) -> None:
    """The whole kit, for the filters that decode by blocks of their own."""
    stored = next(_kinds("<i2"))
    _write(tmp_path / "x.h5", stored, STORAGE[storage], FILTERS[name])
    reader = open_reader(Location(str(tmp_path / "x.h5"), "x"))
    laws.check_some_boxes(reader, stored[np.newaxis])
    laws.check_threads(reader, stored[np.newaxis])
    laws.check_cost(reader)
    reader.close()


@pytest.mark.parametrize("name", [name for name in FILTERS if name != "none"])
def test_chunks_without_their_filters_are_read(laws: ModuleType, tmp_path: Path, name: str) -> None:
    """A chunk that skipped the shuffle, the filter, the checksum or several of them says so in its mask."""
    stored = next(_kinds("<i2"))
    extra = {"shuffle": True, "fletcher32": True}
    with h5py.File(tmp_path / "x.h5", "w") as file:
        dataset = file.create_dataset("x", data=stored, chunks=(4, 4, 4), **FILTERS[name], **extra)
        plain = np.ascontiguousarray(stored[:4, :4, :4])
        planes = np.ascontiguousarray(plain.view(np.uint8).reshape(-1, 2).T)
        dataset.id.write_direct_chunk((0, 0, 0), plain.tobytes(), filter_mask=0b111)
        dataset.id.write_direct_chunk((4, 0, 0), planes.tobytes(), filter_mask=0b110)
        expected = stored.copy()
        expected[4:8, :4, :4] = plain
    with h5py.File(tmp_path / "x.h5") as file:
        assert laws.same_bits(file["x"][()], expected)
    if name in PYFIVE_FILTERS:
        with pyfive.File(tmp_path / "x.h5") as plain_file:
            assert laws.same_bits(_native(plain_file["x"][()]), expected)
    reader = open_reader(Location(str(tmp_path / "x.h5"), "x"))
    assert reader.describe().route == "native"
    laws.check_some_boxes(reader, expected[np.newaxis])
    reader.close()


@pytest.mark.parametrize("dtype", TYPES)
def test_contiguous_storage_agrees_with_pyfive(laws: ModuleType, tmp_path: Path, dtype: str) -> None:
    """Contiguous data of every type, in both versions of the format."""
    for options in ({}, {"libver": "latest"}):
        for stored in _kinds(dtype):
            with h5py.File(tmp_path / "x.h5", "w", **options) as file:
                file.create_dataset("x", data=stored, dtype=dtype)
            with pyfive.File(tmp_path / "x.h5") as plain:
                assert laws.same_bits(_native(plain["x"][()]), _native(stored))
            reader = open_reader(Location(str(tmp_path / "x.h5"), "x"))
            assert reader.describe().route == "native"
            laws.check_some_boxes(reader, _native(stored)[np.newaxis])
            reader.close()
            (tmp_path / "x.h5").unlink()


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("name", ["deflate", "blosc2 lz4", "bitshuffle lz4", "szip nn"])
def test_every_axis_order_with_filters(laws: ModuleType, tmp_path: Path, name: str) -> None:
    """Each of the 30 axis orders, filtered and shuffled, is transposed, never reshaped."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for axes in laws.AXES:
            stored = laws.voxels((3, 4, 5, 6)[: len(axes)], "<i4")
            options = FILTERS[name] | {"shuffle": True}
            file.create_dataset(axes, data=stored, chunks=(2, 3, 4, 4)[: len(axes)], **options)
    for axes in laws.AXES:
        reader = open_reader(Location(str(tmp_path / "x.h5"), axes, axes=axes))
        assert reader.describe().route == "native"
        stored = laws.voxels((3, 4, 5, 6)[: len(axes)], "<i4")
        laws.check_some_boxes(reader, laws.to_volume(stored, axes))
        reader.close()
