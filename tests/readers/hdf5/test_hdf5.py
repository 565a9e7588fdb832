"""HDF5 datasets of every layout, natively and through h5py."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py
import numpy as np
import pytest

from tests.support.ranks import RANK, printed_by_ranks
from voxload.errors import DataError, NotFoundError, UsageError
from voxload.geometry import Box
from voxload.readers import Location, Missing, find_format, open_reader
from voxload.readers.hdf5 import Hdf5Reader

pytestmark = pytest.mark.usefixtures("no_leaks")

SHAPE = (7, 6, 5, 3)
"""Stored as DHWC; no chunk below divides it."""
CHUNKS = (4, 4, 2, 2)

LAYOUTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "contiguous": ({}, {}),
    "chunked": ({"chunks": CHUNKS}, {}),
    "one_chunk": ({"chunks": SHAPE}, {}),
    "gzip_shuffle": ({"chunks": CHUNKS, "compression": "gzip", "shuffle": True}, {}),
    "lzf": ({"chunks": CHUNKS, "compression": "lzf"}, {}),
    "fletcher32": ({"chunks": CHUNKS, "fletcher32": True}, {}),
    "gzip_fletcher32": ({"chunks": CHUNKS, "compression": "gzip", "fletcher32": True}, {}),
    "unlimited": ({"chunks": CHUNKS, "maxshape": (None, None, None, None)}, {}),
    "user_block": ({"chunks": CHUNKS}, {"userblock_size": 2048}),
    "latest_chunked": ({"chunks": CHUNKS, "compression": "gzip"}, {"libver": "latest"}),
    "latest_unlimited": ({"chunks": CHUNKS, "maxshape": (None, 6, 5, 3)}, {"libver": "latest"}),
    "latest_contiguous": ({}, {"libver": "latest"}),
    "paged": ({"chunks": CHUNKS}, {"fs_strategy": "page", "fs_page_size": 4096}),
}
"""Name to the options of the dataset and of the file."""
SHORT = (">f4", "<i2")
"""What the short run reads by h5py, and natively."""
BY_H5PY = ("contiguous", "gzip_shuffle", "latest_unlimited", "paged")
"""Layouts that the short run reads by h5py, too."""
TYPES = [
    pytest.param(kind, order, marks=() if kind % 2 == place else pytest.mark.long)
    for place, order in enumerate("<>")
    for kind in range(12)
]
"""Every type in each byte order; the short run has each type in one order, and each width in both."""
PLUGINS = ("Blosc", "Blosc2", "Zstd", "LZ4", "Bitshuffle", "BZip2")
"""Filters of hdf5plugin."""


def write(
    path: Path, stored: np.ndarray[Any, Any], options: Mapping[str, Any], file_options: Mapping[str, Any]
) -> None:
    """Write one dataset "x", its type as stored."""
    with h5py.File(path, "w", **file_options) as file:
        file.create_dataset("x", data=stored, dtype=stored.dtype, **options)


@pytest.mark.few_cases(3)
@pytest.mark.parametrize(
    ("layout", "is_native", "dtype"),
    [
        pytest.param(
            layout,
            is_native,
            dtype,
            id=f"{'native' if is_native else 'h5py'}-{dtype}-{layout}",
            marks=() if dtype == SHORT[is_native] and (is_native or layout in BY_H5PY) else pytest.mark.long,
        )
        for layout in LAYOUTS
        for is_native in (True, False)
        for dtype in SHORT
    ],
)
def test_every_layout_keeps_the_laws(
    laws: ModuleType, tmp_path: Path, layout: str, dtype: str, is_native: bool
) -> None:
    """Whatever the layout, filters and file version, the dataset is a Reader, natively and through h5py."""
    stored = laws.voxels(SHAPE, dtype)
    options, file_options = LAYOUTS[layout]
    write(tmp_path / "x.h5", stored, options, file_options)
    location = Location(str(tmp_path / "x.h5"), "x", axes="DHWC")
    reader = open_reader(location) if is_native else Hdf5Reader(location, Missing.ERROR)
    try:
        laws.check_reader(reader, laws.to_volume(stored, "DHWC"))
        info = reader.describe()
        assert info.route == ("native" if is_native else "")
        with h5py.File(tmp_path / "x.h5") as file:
            assert reader.cost(info.whole).stored_bytes == file["x"].id.get_storage_size()
        assert info.dtype == np.dtype(dtype)
        chunks = options.get("chunks")
        assert info.chunks == (chunks and (chunks[3], *chunks[:3]))
    finally:
        reader.close()


@pytest.mark.few_cases(2)
@pytest.mark.parametrize(("kind", "byte_order"), TYPES)
def test_every_type_in_every_axis_order(laws: ModuleType, tmp_path: Path, kind: int, byte_order: str) -> None:
    """Each of the 30 axis orders of each type and byte order is transposed, never reshaped."""
    dtype = np.dtype(laws.DTYPES[kind]).newbyteorder(byte_order)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for axes in laws.AXES:
            stored = laws.voxels((2, 3, 4, 5)[: len(axes)], dtype)
            file.create_dataset(axes, data=stored, dtype=dtype, chunks=(2, 2, 3, 3)[: len(axes)])
    for axes in laws.AXES:
        stored = laws.voxels((2, 3, 4, 5)[: len(axes)], dtype)
        reader = open_reader(Location(str(tmp_path / "x.h5"), axes, axes=axes))
        assert laws.same_bits(laws.read(reader, reader.describe().whole), laws.to_volume(stored, axes))
        reader.close()


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("name", PLUGINS)
def test_what_plugins_wrote_keeps_the_laws(laws: ModuleType, tmp_path: Path, name: str) -> None:
    """Blosc, zstd, bitshuffle and bzip2 are decoded natively."""
    hdf5plugin = pytest.importorskip("hdf5plugin")
    stored = laws.voxels(SHAPE)
    write(tmp_path / "x.h5", stored, {"chunks": CHUNKS, **getattr(hdf5plugin, name)()}, {})
    reader = open_reader(Location(str(tmp_path / "x.h5"), axes="DHWC"))
    laws.check_reader(reader, laws.to_volume(stored, "DHWC"))
    assert reader.describe().route == "native"
    reader.close()


@pytest.mark.long
def test_filter_plugins_are_loaded_when_they_are_needed(laws: ModuleType, tmp_path: Path) -> None:
    """A process that never imported hdf5plugin reads blosc, zstd and bitshuffle once the package is installed."""
    hdf5plugin = pytest.importorskip("hdf5plugin")
    stored = laws.voxels(SHAPE)
    for name in PLUGINS:
        options = {"chunks": CHUNKS, **getattr(hdf5plugin, name)()}
        write(tmp_path / f"{name}.h5", stored, options, {})
    script = (
        "import sys, numpy; from voxload.readers import Location, open_reader\n"
        "assert 'hdf5plugin' not in sys.modules\n"
        "r = open_reader(Location(sys.argv[2 + int(sys.argv[1])], axes='DHWC')); i = r.describe()\n"
        "out = numpy.empty(i.shape, i.native_dtype); r.read_into(i.whole, out); print(out.tobytes().hex())\n"
    )
    (tmp_path / "read.py").write_text(script)
    paths = [tmp_path / f"{name}.h5" for name in PLUGINS]
    printed = printed_by_ranks(tmp_path / "read.py", RANK, *paths, ranks=len(PLUGINS))
    expected = laws.to_volume(stored, "DHWC").tobytes()
    assert [bytes.fromhex(line) for line in printed.split()] == [expected] * len(PLUGINS)


def test_chunks_that_skipped_a_filter_are_read(laws: ModuleType, tmp_path: Path) -> None:
    """A chunk's own filter mask is obeyed: gzip was left out for one chunk of four."""
    stored = laws.voxels((4, 4, 4))
    with h5py.File(tmp_path / "x.h5", "w") as file:
        dataset = file.create_dataset("x", data=stored, chunks=(2, 2, 4), compression="gzip")
        dataset.id.write_direct_chunk((2, 0, 0), stored[2:, :2].tobytes(), filter_mask=1)
    reader = open_reader(Location(str(tmp_path / "x.h5")))
    assert laws.same_bits(laws.read(reader, reader.describe().whole), stored[np.newaxis])
    assert reader.cost(Box((2, 0, 0), (4, 2, 4))).stored_bytes == 32
    reader.close()


def test_compact_storage_is_read(laws: ModuleType, tmp_path: Path) -> None:
    """A small dataset may lie inside its object header."""
    stored = laws.voxels((4, 4, 4))
    with h5py.File(tmp_path / "x.h5", "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple(stored.shape)
        h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_INT16, space, plist).write(h5py.h5s.ALL, h5py.h5s.ALL, stored)
    reader = open_reader(Location(str(tmp_path / "x.h5")))
    laws.check_reader(reader, stored[np.newaxis])
    reader.close()


def test_the_only_volume_needs_no_name_and_no_axes(laws: ModuleType, tmp_path: Path) -> None:
    """Vectors and scalars beside a single volume do not make it ambiguous; labelled dimensions name the axes."""
    stored = laws.voxels(SHAPE)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        dataset = file.create_dataset("deep/inside/full", data=stored)
        for axis, label in enumerate("dhwc"):
            dataset.dims[axis].label = label
        file["unitPar"] = [0.1, 0.2]
    path = str(tmp_path / "x.h5")
    reader = open_reader(Location(path))
    assert reader.describe().axes == "DHWC"
    assert laws.same_bits(laws.read(reader, reader.describe().whole), laws.to_volume(stored, "DHWC"))
    reader.close()
    assert find_format(path).datasets(path) == ("deep/inside/full",)
    with_slash = open_reader(Location(path, "/deep/inside/full"))
    assert with_slash.describe().shape == (3, 7, 6, 5)
    with_slash.close()


def test_codecs_are_named_in_the_order_of_writing(tmp_path: Path) -> None:
    """The description lists the filters as the file does."""
    write(tmp_path / "x.h5", np.zeros((4, 4, 4), "<i2"), {"chunks": (2, 2, 2), "compression": 4, "shuffle": True}, {})
    reader = open_reader(Location(str(tmp_path / "x.h5")))
    assert reader.describe().codecs == ("shuffle", "deflate")
    reader.close()


def test_a_closed_reader_refuses(laws: ModuleType, tmp_path: Path) -> None:
    """After close a read and a cost are misuse, not damage."""
    write(tmp_path / "x.h5", laws.voxels((4, 4, 4)), {"chunks": (2, 2, 2)}, {})
    reader = open_reader(Location(str(tmp_path / "x.h5")))
    whole = reader.describe().whole
    reader.close()
    with pytest.raises(UsageError, match="a closed reader"):
        laws.read(reader, whole)


def test_vectors_are_read_whole_or_refused(laws: ModuleType, tmp_path: Path) -> None:
    """Targets beside a volume: one axis or a scalar, numbers, and written."""
    path = str(tmp_path / "x.h5")
    with h5py.File(path, "w") as file:
        file["unitPar"] = np.array([0.25, -1.5], ">f4")
        file["redshift"] = 3
        file["full"] = laws.voxels((4, 4, 4))
        file["name"] = "universe"
        file.create_dataset("planned", (4,), "f8")
        file.create_dataset("half", (4,), "f8", chunks=(2,))[:2] = 1
    hdf5 = find_format(path)
    assert hdf5.read_vector(path, "unitPar").tolist() == [0.25, -1.5]
    assert hdf5.read_vector(path, "redshift").tolist() == [3.0]
    for name, kind, words in (
        ("full", UsageError, "one axis of numbers"),
        ("name", UsageError, "one axis of numbers"),
        ("planned", DataError, "no value ever written"),
        ("half", DataError, r"chunk \(1,\) never written"),
        ("absent", NotFoundError, r"no dataset 'absent', expected one of \['full', 'half'"),
    ):
        with pytest.raises(kind, match=words):
            hdf5.read_vector(path, name)


def test_what_libhdf5_must_read_says_why(laws: ModuleType, tmp_path: Path) -> None:
    """Types that the native route does not know go through h5py and say so; filters behind others do not."""
    hdf5plugin = pytest.importorskip("hdf5plugin")
    stored = laws.voxels((4, 4, 4), "<i4")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("scaled", data=stored, chunks=(2, 2, 2), scaleoffset=0)
        twice = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        twice.set_deflate(1)
        file.create_dataset("twice", data=stored, chunks=(4, 4, 4), dcpl=twice, **hdf5plugin.Zstd())
        odd = h5py.h5t.NATIVE_INT32.copy()
        odd.set_precision(20)
        h5py.h5d.create(file.id, b"odd", odd, h5py.h5s.create_simple((4, 4, 4))).write(
            h5py.h5s.ALL, h5py.h5s.ALL, np.abs(stored) % 1000
        )
    expected = {
        "scaled": "native",
        "twice": "native",
        "odd": "h5py: elements whose stored form",
    }
    for name, words in expected.items():
        reader = open_reader(Location(str(tmp_path / "x.h5"), name))
        assert words in reader.describe().route
        whole = np.abs(stored) % 1000 if name == "odd" else stored
        assert laws.same_bits(laws.read(reader, reader.describe().whole), whole[np.newaxis])
        reader.close()


def test_a_file_that_changes_is_noticed(laws: ModuleType, tmp_path: Path) -> None:
    """A file that is written to after its chunk table was read is refused, not read by an old table."""
    stored = laws.voxels((4, 4, 4))
    write(tmp_path / "x.h5", stored, {"chunks": (2, 2, 2)}, {})
    reader = open_reader(Location(str(tmp_path / "x.h5")))
    laws.read(reader, reader.describe().whole)
    os.utime(tmp_path / "x.h5", ns=(1, 1))
    with pytest.raises(DataError, match="changed since it was opened"):
        laws.read(reader, reader.describe().whole)
    reader.close()
