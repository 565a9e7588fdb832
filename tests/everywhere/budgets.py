"""Small files that claim much, each given to voxload in this process; prints what became of each as JSON.

Peak memory is the process's own count (``ru_maxrss``), so one process may judge them all: it only grows.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
from array import array
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zarr

from voxload.catalog.table import Catalog, Entry
from voxload.cli.inspect.raw import Choice
from voxload.cli.inspect.subject import Given, find_subject
from voxload.convert import ConvertOptions, convert
from voxload.convert.sources.arrays.hdf5 import Hdf5
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.probe import Probe
from voxload.convert.targets.files import read_targets
from voxload.errors import VoxloadError
from voxload.files.parquet import _check_pages
from voxload.readers import Location, find_format, open_reader
from voxload.readers.hdf5 import chunktable
from voxload.readers.hdf5.chunktable import ChunkTable
from voxload.readers.protocol import Missing
from voxload.verification.volume import VerifyReport, VolumeCheck

ROOM = 2**31
"""Bytes of address space beyond what the libraries have; a claim that is believed ends in MemoryError."""
CLAIMS: dict[str, Callable[[Path], object]] = {}


def claim(make: Callable[[Path], object]) -> Callable[[Path], object]:
    """Note a claim under its name."""
    CLAIMS[make.__name__] = make
    return make


def _array(folder: Path, shape: list[int], chunks: list[int], inner: list[int] | None = None) -> str:
    """Write the metadata of a Zarr array and no chunk."""
    codecs: list[Any] = [{"name": "bytes", "configuration": {"endian": "little"}}]
    if inner:
        config = {"chunk_shape": inner, "codecs": codecs, "index_codecs": [*codecs, {"name": "crc32c"}]}
        codecs = [{"name": "sharding_indexed", "configuration": {**config, "index_location": "end"}}]
    grid = {"name": "regular", "configuration": {"chunk_shape": chunks}}
    names = ["d", "h", "w"] if len(shape) == 3 else None
    values = {"zarr_format": 3, "node_type": "array", "data_type": "float32", "fill_value": 0, "attributes": {}}
    key = {"name": "default", "configuration": {"separator": "/"}}
    more = {"shape": shape, "chunk_grid": grid, "chunk_key_encoding": key, "codecs": codecs, "dimension_names": names}
    path = folder / "a.zarr"
    path.mkdir()
    (path / "zarr.json").write_text(json.dumps(values | more))
    return str(path)


def _cost(path: str) -> list[int]:
    reader = open_reader(Location(path), missing="fill")
    cost = reader.cost(reader.describe().whole)
    return [cost.chunks, cost.stored_bytes]


@claim
def zarr_chunks(folder: Path) -> object:
    """Claim 10^18 chunks, of which two are stored."""
    path = _array(folder, [10**6] * 3, [1, 1, 1])
    for key in ("c/0/0/0", "c/999999/5/7"):
        (Path(path) / key).parent.mkdir(parents=True)
        (Path(path) / key).write_bytes(bytes(4))
    return _cost(path)


@claim
def zarr_verified(folder: Path) -> object:
    """Claim 10^18 chunks, and ask for the checksums of each."""
    path = _array(folder, [10**6] * 3, [1, 1, 1])
    entry = Entry("u", "a.zarr", "", (10**6,) * 3, "<f4", "DHW", 0)
    report = VerifyReport(folder)
    VolumeCheck(entry, Location(path), report=report, on_bytes=lambda _: None).run(Missing.FILL)
    return f"DataError: {report.faults[0].error}"


@claim
def zarr_extents(folder: Path) -> object:
    """Claim extents whose product no number of 64 bits holds."""
    return _cost(_array(folder, [2**62] * 3, [2**10] * 3))


@claim
def zarr_inner_chunks(folder: Path) -> object:
    """Claim a shard of 10^9 chunks."""
    return _cost(_array(folder, [10**3] * 3, [10**3] * 3, [1, 1, 1]))


@claim
def zarr_empty_chunks(folder: Path) -> object:
    """Claim chunks of no voxels."""
    return _cost(_array(folder, [8] * 3, [0, 8, 8]))


@claim
def zarr_axes(folder: Path) -> object:
    """Claim 10,000 axes."""
    return _cost(_array(folder, [1] * 10**4, [1] * 10**4))


@claim
def zarr_nested_metadata(folder: Path) -> object:
    """Give metadata that are nested 100,000 deep."""
    (folder / "a.zarr").mkdir()
    (folder / "a.zarr/zarr.json").write_text("[" * 10**5)
    return _cost(str(folder / "a.zarr"))


@claim
def zarr_long_metadata(folder: Path) -> object:
    """Give metadata of 8 GiB."""
    (folder / "a.zarr").mkdir()
    (folder / "a.zarr/zarr.json").touch()
    os.truncate(folder / "a.zarr/zarr.json", 2**33)
    return _cost(str(folder / "a.zarr"))


@claim
def zarr_members(folder: Path) -> object:
    """Give many arrays, and ask what there is."""
    group = zarr.create_group(folder / "a.zarr")
    group.create_array("n0000", shape=(2, 2, 2), dtype="f4", dimension_names=("d", "h", "w"))
    text = (folder / "a.zarr/n0000/zarr.json").read_text()
    for number in range(1, 1200):
        (folder / f"a.zarr/n{number:04}").mkdir()
        (folder / f"a.zarr/n{number:04}/zarr.json").write_text(text)
    named = find_subject(Given(str(folder / "a.zarr"), Choice(dataset="n0007")))
    many = find_subject(Given(str(folder / "a.zarr"), Choice())).many
    return [len(many), named.listing is None and named.stored is not None]


def _hdf5(folder: Path, shape: tuple[int, ...], chunks: tuple[int, ...], **words: Any) -> str:
    path = folder / "a.h5"
    with h5py.File(path, "w", libver="latest") as file:
        data = file.create_dataset("x", shape, "f4", chunks=chunks, **words)
        for axis, label in zip(data.dims, "dhw", strict=False):
            axis.label = label
    return str(path)


@claim
def hdf5_claimed_chunks(folder: Path) -> object:
    """Claim 10^12 chunks, of which none is stored."""
    return _cost(_hdf5(folder, (10**4,) * 3, (1, 1, 1)))


@claim
def hdf5_table(folder: Path) -> object:
    """Tell whether the table of many chunks takes little more than its 20 bytes for each."""
    path, extent = _hdf5(folder, (32, 32, 32), (1, 1, 1)), 32
    with h5py.File(path, "r+") as file:
        file["x"][...] = 1
    kept: list[int] = []

    class Watched(array):  # type: ignore[type-arg] # what its rows are gathered in
        def extend(self, values: Any) -> None:
            super().extend(values)
            kept.append(len(self) * self.itemsize)

    with mock.patch.object(chunktable, "array", Watched), h5py.File(path) as file:
        table = ChunkTable.read(file["x"])
    return [table.nbytes // extent**3, max(kept) < 2**20]


@claim
def hdf5_convert_table(folder: Path) -> object:
    """Claim chunks whose table is larger than the conversion may be."""
    path = _hdf5(folder, (300, 300, 300), (1, 1, 1))
    return convert(path, folder / "out", options=ConvertOptions(max_memory=2**29, workers=1))


@claim
def hdf5_convert_chunk(folder: Path) -> object:
    """Claim one chunk of 1 GiB, of which 1 MB is stored."""
    path = _hdf5(folder, (512, 1024, 512), (512, 1024, 512), compression="gzip")
    with h5py.File(path, "r+") as file:
        file["x"].id.write_direct_chunk((0, 0, 0), bytes(10**6))
    return convert(path, folder / "out", options=ConvertOptions(max_memory=2**29, workers=1))


@claim
def hdf5_vector(folder: Path) -> object:
    """Claim a vector of 16 GiB."""
    path = _hdf5(folder, (2**31,), (2**20,))
    return find_format(path).read_vector(path, "x")


@claim
def hdf5_members(folder: Path) -> object:
    """Give many datasets, and ask what there is, and for one by its name."""
    with h5py.File(folder / "a.h5", "w", libver="latest") as file:
        space = h5py.h5s.create_simple((2, 2, 2))
        for number in range(1200):
            h5py.h5d.create(file.id, f"n{number:04}".encode(), h5py.h5t.NATIVE_FLOAT, space)
    path = folder / "a.h5"
    many = find_subject(Given(str(path), Choice())).many
    probe = Probe(path)
    Hdf5().sources(probe, Hints("DHW", datasets=("n0007",)))
    tree = probe.hdf5
    looked = sum(known is not None for known in getattr(tree.datasets if tree else None, "_known", {}).values())
    named = find_subject(Given(str(path), Choice(dataset="n0007")))
    return [len(many), looked, named.listing is None and named.stored is not None]


def _rows(path: Path, groups: int) -> None:
    """Write a table of which all values are one, whose rows take a few bits each."""
    some = pa.table({"sample": pa.array(["u"]).take(np.zeros(2**22, np.int8)), "x": np.zeros(2**22)})
    with pq.ParquetWriter(path, some.schema, compression="zstd") as file:
        for _ in range(groups):
            file.write_table(some)


@claim
def parquet_catalogue(folder: Path) -> object:
    """Give a catalogue of a few KB that has 10^8 rows."""
    _rows(folder / "catalog.parquet", 24)
    return Catalog.read(folder)


@claim
def parquet_targets(folder: Path) -> object:
    """Give it as a table of targets."""
    shutil.copy(folder.with_name("parquet_catalogue") / "catalog.parquet", folder / "targets.parquet")
    return read_targets(folder / "targets.parquet")


@claim
def parquet_vector(folder: Path) -> object:
    """Give one row with a long list."""
    values = pa.array(np.zeros(2**21, np.int64))
    table = pa.table({"sample": ["a"], "shape": pa.ListArray.from_arrays([0, len(values)], values)})
    pq.write_table(table, folder / "catalog.parquet", compression="zstd")
    os.environ["VOXLOAD_MAX_TABLE"] = "1MiB"
    try:
        return Catalog.read(folder)
    finally:
        del os.environ["VOXLOAD_MAX_TABLE"]


@claim
def parquet_footer(folder: Path) -> object:
    """Give pages of more values than their footer claims."""
    path = folder / "a.parquet"
    pq.write_table(pa.table({"x": np.zeros(1000)}), path)
    true = pq.read_metadata(path).row_group(0).column(0)
    names = ("data_page_offset", "dictionary_page_offset", "has_dictionary_page")
    sizes = ("total_compressed_size", "total_uncompressed_size")
    claimed = {name: getattr(true, name) for name in (*names, *sizes)} | {"num_values": 1}
    with path.open("rb") as file:
        _check_pages(file, SimpleNamespace(**claimed))
    return None


@claim
def text_targets(folder: Path) -> object:
    """Give text of 8 GiB."""
    (folder / "t.csv").write_text("sample,a\n")
    os.truncate(folder / "t.csv", 2**33)
    return read_targets(folder / "t.csv")


@claim
def nested_targets(folder: Path) -> object:
    """Give JSON that is nested 100,000 deep."""
    (folder / "t.json").write_text("[" * 10**5)
    return read_targets(folder / "t.json")


def main() -> None:
    """Try all claims."""
    root = Path(sys.argv[1])
    status = Path("/proc/self/status").read_text().splitlines()
    (used,) = (line.split()[1] for line in status if line.startswith("VmSize"))
    resource.setrlimit(resource.RLIMIT_AS, (1024 * int(used) + ROOM,) * 2)
    found = {}
    for name, make in CLAIMS.items():
        (root / name).mkdir()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            said: object = make(root / name)
        except (VoxloadError, pa.ArrowInvalid) as error:
            said = f"{type(error).__name__}: {error}"
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        found[name] = [said if isinstance(said, list | str) else repr(said), 1024 * grown]
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
