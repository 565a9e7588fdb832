"""Zarr arrays of format 2 and 3, chunked and sharded."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    ShardingCodec,
    TransposeCodec,
    ZstdCodec,
)
from zarr.core import array

from voxload.errors import DataError, NotFoundError, UsageError
from voxload.geometry import Box
from voxload.readers import Location, Missing, Reader, find_format, open_reader
from voxload.readers.zarr import hierarchy
from voxload.readers.zarr.reader import ZarrReader

pytestmark = pytest.mark.usefixtures("no_leaks")

SHAPE = (7, 6, 5, 3)
"""Stored as DHWC; no chunk or shard below divides it."""
CHUNKS = (4, 2, 2, 2)
SHARDS = (8, 4, 4, 2)

V2: dict[str, dict[str, Any]] = {
    "plain": {"compressors": None},
    "fortran": {"compressors": None, "order": "F"},
    "slash": {"compressors": None, "chunk_key_encoding": {"name": "v2", "separator": "/"}},
    "zlib": {"compressors": numcodecs.Zlib(1)},
    "blosc": {"compressors": numcodecs.Blosc("lz4", shuffle=numcodecs.Blosc.BITSHUFFLE), "order": "F"},
    "filtered": {"compressors": numcodecs.Zstd(1), "filters": [numcodecs.Shuffle(2)]},
}
V3: dict[str, dict[str, Any]] = {
    "plain": {"compressors": None},
    "big_endian": {"compressors": None, "serializer": BytesCodec(endian="big")},
    "transposed": {"compressors": None, "filters": [TransposeCodec(order=(3, 0, 2, 1))]},
    "gzip": {"compressors": GzipCodec(level=1)},
    "zstd": {"compressors": ZstdCodec(level=1)},
    "zstd_checksum": {"compressors": ZstdCodec(level=1, checksum=True)},
    "blosc": {"compressors": BloscCodec(cname="lz4", shuffle="bitshuffle")},
    "crc32c": {"compressors": [Crc32cCodec()]},
    "v2_keys": {"compressors": None, "chunk_key_encoding": {"name": "v2", "separator": "."}},
    "dot_keys": {"compressors": None, "chunk_key_encoding": {"name": "default", "separator": "."}},
}


def sharding(location: str, *, has_checksum: bool, inner: tuple[Any, ...] = ()) -> ShardingCodec:
    """Return a sharding codec with its index at the start or the end."""
    index = (BytesCodec(), Crc32cCodec()) if has_checksum else (BytesCodec(),)
    return ShardingCodec(
        chunk_shape=CHUNKS, codecs=inner or (BytesCodec(),), index_codecs=index, index_location=location
    )


SHARDED: dict[str, ShardingCodec] = {
    "end": sharding("end", has_checksum=True),
    "end_without_crc": sharding("end", has_checksum=False),
    "start": sharding("start", has_checksum=True),
    "start_without_crc": sharding("start", has_checksum=False),
    "compressed": sharding("end", has_checksum=True, inner=(BytesCodec(), BloscCodec(cname="lz4"), Crc32cCodec())),
    "transposed": sharding(
        "end", has_checksum=True, inner=(TransposeCodec(order=(2, 3, 1, 0)), BytesCodec(endian="big"))
    ),
}


def write(path: Path, stored: np.ndarray[Any, Any], **options: Any) -> None:
    """Write a bare array, every chunk of it."""
    array = zarr.create_array(
        path,
        shape=stored.shape,
        dtype=stored.dtype,
        **{"chunks": CHUNKS[: stored.ndim], "config": {"write_empty_chunks": True}, **options},
    )
    array[...] = stored


def stored_bytes(path: Path) -> int:
    """Return the bytes of all files that are no metadata."""
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file() and p.name not in {"zarr.json"} | V2_METADATA)


V2_METADATA = {".zarray", ".zattrs", ".zgroup"}


TYPES = [
    pytest.param(zarr_format, kind, order, marks=() if (kind + zarr_format) % 2 == place else pytest.mark.long)
    for place, order in enumerate("<>")
    for kind in range(12)
    for zarr_format in (2, 3)
]
"""Every type in each byte order and format; the short run has each type in both orders, one a format."""
ROUTES = ("native", "zarr-python")

FALLEN_BACK = ("big_endian", "fortran", "filtered", "end_without_crc")
"""Kinds that the short run reads by zarr-python, too."""
REFUSED = {"filtered": "filters shuffle"}
"""Kinds that have no native route, and why."""


@contextmanager
def opened(path: Path, axes: str | None = None, *, route: str = "native", missing: str = "error") -> Iterator[Reader]:
    """Yield a reader of one route; the native one is what opening by location must give wherever it can."""
    location = Location(str(path), axes=axes)
    native = route == "native"
    reader = open_reader(location, missing=missing) if native else ZarrReader(location, Missing(missing))
    with closing(reader):
        yield reader


def routed(kinds: Iterable[str], *others: Any) -> list[Any]:
    """Return each kind by each route; by zarr-python, the short run reads those of `FALLEN_BACK`."""
    return [
        pytest.param(kind, route, *others, marks=() if route == "native" or kind in FALLEN_BACK else pytest.mark.long)
        for kind in kinds
        for route in ROUTES
    ]


@pytest.mark.few_cases(2)
@pytest.mark.parametrize(
    ("kind", "route", "dtype"),
    [
        *routed(V2, ">f4"),
        *(pytest.param(kind, route, "<i2", marks=pytest.mark.long) for kind in V2 for route in ROUTES),
    ],
)
def test_format_2_keeps_the_laws(laws: ModuleType, tmp_path: Path, kind: str, dtype: str, route: str) -> None:
    """An array of format 2, whatever its order, separator and compressor, is a Reader."""
    options = dict(V2[kind])
    if kind == "filtered":
        options["filters"] = [numcodecs.Shuffle(np.dtype(dtype).itemsize)]
    stored = laws.voxels(SHAPE, dtype)
    write(tmp_path / "x.zarr", stored, zarr_format=2, **options)
    with opened(tmp_path / "x.zarr", "DHWC", route=route) as reader:
        laws.check_reader(reader, laws.to_volume(stored, "DHWC"))
        assert reader.cost(reader.describe().whole).stored_bytes == stored_bytes(tmp_path / "x.zarr")
        assert reader.describe().dtype == np.dtype(dtype)
        assert reader.describe().format == "Zarr v2"
        assert reader.describe().route == (f"zarr-python: {REFUSED[kind]}" if kind in REFUSED else route)


@pytest.mark.few_cases(2)
@pytest.mark.parametrize(("kind", "route"), routed(V3))
def test_format_3_keeps_the_laws(laws: ModuleType, tmp_path: Path, kind: str, route: str) -> None:
    """An array of format 3, whatever its codecs and chunk names, is a Reader."""
    stored = laws.voxels(SHAPE)
    write(tmp_path / "x.zarr", stored, zarr_format=3, **V3[kind])
    with opened(tmp_path / "x.zarr", "DHWC", route=route) as reader:
        laws.check_reader(reader, laws.to_volume(stored, "DHWC"))
        assert reader.cost(reader.describe().whole).stored_bytes == stored_bytes(tmp_path / "x.zarr")
        assert reader.describe().chunks == (2, 4, 2, 2)
        assert reader.describe().shards is None
        assert reader.describe().route == route


@pytest.mark.few_cases(2)
@pytest.mark.parametrize(("kind", "route"), routed(SHARDED))
def test_shards_keep_the_laws(laws: ModuleType, tmp_path: Path, kind: str, route: str) -> None:
    """A sharded array, its index at either end and with or without a checksum, is a Reader."""
    stored = laws.voxels(SHAPE)
    write(tmp_path / "x.zarr", stored, chunks=SHARDS, serializer=SHARDED[kind], compressors=None)
    with opened(tmp_path / "x.zarr", "DHWC", route=route) as reader:
        laws.check_reader(reader, laws.to_volume(stored, "DHWC"))
        assert reader.cost(reader.describe().whole).stored_bytes == stored_bytes(tmp_path / "x.zarr")
        assert reader.describe().chunks == (2, 4, 2, 2)
        assert reader.describe().shards == (2, 8, 4, 4)
        assert reader.describe().route == route


def test_an_inner_chunk_costs_itself_and_one_index(laws: ModuleType, tmp_path: Path) -> None:
    """One inner chunk of a shard: 8 x 2 x 2 voxels of 2 bytes, and an index of 16 entries and a checksum."""
    write(tmp_path / "x.zarr", laws.voxels((8, 8, 8)), chunks=(8, 2, 2), shards=(8, 8, 8), compressors=None)
    reader = open_reader(Location(str(tmp_path / "x.zarr")))
    cost = reader.cost(Box((3, 2, 2), (4, 4, 4)))
    assert (cost.chunks, cost.stored_bytes, cost.decoded_bytes) == (1, 8 * 2 * 2 * 2 + 16 * 16 + 4, 8 * 2 * 2 * 2)


@pytest.mark.parametrize(("zarr_format", "kind", "byte_order"), TYPES)
def test_every_type(laws: ModuleType, tmp_path: Path, zarr_format: int, kind: int, byte_order: str) -> None:
    """Each type in each byte order comes back in native order; format 3 keeps the order in its bytes codec."""
    dtype = np.dtype(laws.DTYPES[kind]).newbyteorder(byte_order)
    axes = laws.AXES[(kind * 7 + zarr_format) % len(laws.AXES)]
    stored = laws.voxels((3, 4, 5, 6)[: len(axes)], dtype)
    endian = "big" if byte_order == ">" else "little"
    codec = {"serializer": BytesCodec(endian=endian)} if zarr_format == 3 else {}
    write(tmp_path / "x.zarr", stored, zarr_format=zarr_format, compressors=None, **codec)
    reader = open_reader(Location(str(tmp_path / "x.zarr"), axes=axes))
    assert laws.same_bits(laws.read(reader, reader.describe().whole), laws.to_volume(stored, axes))
    assert reader.describe().dtype == dtype


@pytest.mark.long
def test_every_axis_order(laws: ModuleType, tmp_path: Path) -> None:
    """Each of the 30 axis orders is transposed, never reshaped; dimension names say which it is."""
    for axes in laws.AXES:
        stored = laws.voxels((3, 4, 5, 6)[: len(axes)])
        write(tmp_path / axes, stored, compressors=None, dimension_names=tuple(axes.lower()))
        reader = open_reader(Location(str(tmp_path / axes)))
        assert reader.describe().axes == axes
        assert laws.same_bits(laws.read(reader, reader.describe().whole), laws.to_volume(stored, axes))


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_groups_find_their_arrays(laws: ModuleType, tmp_path: Path, zarr_format: Literal[2, 3]) -> None:
    """An array deep in a hierarchy is found by name; the only volume is found without; vectors do not count."""
    stored = laws.voxels((4, 5, 6))
    path = str(tmp_path / "x.zarr")
    root = zarr.create_group(path, zarr_format=zarr_format)
    root.create_group("deep").create_array("full", data=stored, chunks=(2, 2, 2))
    root.create_array("unitPar", data=np.array([0.25, -1.5]))
    for dataset in ("", "deep/full", "/deep/full"):
        reader = open_reader(Location(path, dataset))
        laws.check_boxes(reader, stored[np.newaxis])
        assert reader.cost(reader.describe().whole).stored_bytes == stored_bytes(tmp_path / "x.zarr/deep/full")
    inside = open_reader(Location(f"{path}/deep", "full"))
    assert laws.same_bits(laws.read(inside, inside.describe().whole), stored[np.newaxis])
    zarr_found = find_format(path)
    assert zarr_found.datasets(path) == ("deep/full",)
    assert zarr_found.datasets(f"{path}/deep/full") == ("",)
    assert zarr_found.read_vector(path, "unitPar").tolist() == [0.25, -1.5]


def test_vectors_are_read_whole_or_refused(laws: ModuleType, tmp_path: Path) -> None:
    """A target whose chunk is gone is an error: zarr-python alone gives zeros, a label like any other."""
    path = str(tmp_path / "x.zarr")
    root = zarr.create_group(path)
    root.create_array("full", data=laws.voxels((4, 4, 4)))
    root.create_array("half", data=np.arange(1.0, 5.0), chunks=(2,))
    (tmp_path / "x.zarr/half/c/1").unlink()
    found = find_format(path)
    for name, kind, words in (
        ("full", UsageError, "one axis of numbers"),
        ("half", DataError, "no chunk half/c/1"),
        ("absent", NotFoundError, r"no array 'absent', expected one of \['full', 'half'\]"),
    ):
        with pytest.raises(kind, match=words):
            found.read_vector(path, name)


def test_codecs_are_named_in_the_order_of_writing(tmp_path: Path) -> None:
    """The description lists the codecs of the chunks, with what blosc runs."""
    stored = np.zeros((4, 4, 4), "<i2")
    write(tmp_path / "a", stored, chunks=(2, 2, 2), shards=(4, 4, 4), compressors=V3["blosc"]["compressors"])
    write(tmp_path / "b", stored, chunks=(2, 2, 2), zarr_format=2, compressors=numcodecs.Zlib(1))
    assert open_reader(Location(str(tmp_path / "a"))).describe().codecs == ("bytes", "blosc(lz4)")
    assert open_reader(Location(str(tmp_path / "b"))).describe().codecs == ("zlib",)


def test_nested_shards_are_refused(laws: ModuleType, tmp_path: Path) -> None:
    """An index that this library cannot check is refused and not trusted."""
    inner = ShardingCodec(chunk_shape=(1, 1, 1))
    outer = ShardingCodec(chunk_shape=(2, 2, 2), codecs=(inner,))
    write(tmp_path / "x.zarr", laws.voxels((4, 4, 4)), chunks=(4, 4, 4), serializer=outer, compressors=None)
    with pytest.raises(UsageError, match="nested shards"):
        open_reader(Location(str(tmp_path / "x.zarr")))


@pytest.mark.parametrize("route", ROUTES)
def test_storage_transformers_are_refused(laws: ModuleType, tmp_path: Path, route: str) -> None:
    """zarr-python passes over what they did to the stored bytes: its voxels would be others."""
    write(tmp_path / "x.zarr", laws.voxels(SHAPE), zarr_format=3, compressors=None)
    path = tmp_path / "x.zarr" / "zarr.json"
    written = json.loads(path.read_text())
    path.write_text(json.dumps(written | {"storage_transformers": [{"name": "turned", "configuration": {}}]}))
    with (
        pytest.raises(UsageError, match="found storage transformers: 'turned', expected none"),
        opened(tmp_path / "x.zarr", "DHWC", route=route) as reader,
    ):
        reader.read_into(reader.describe().whole, np.empty(reader.describe().shape, "<i2"))


@pytest.mark.parametrize("name", ["", "inner/x"])
def test_arrays_with_the_same_document_are_parsed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Each has its own voxels; one whose document is written anew is what that says, and a damaged one is an error."""
    parsed: list[Any] = []
    parse = array.parse_array_metadata

    def counted(document: Any) -> Any:
        parsed.append(document)
        return parse(document)

    monkeypatch.setattr(hierarchy, "parse_array_metadata", counted)
    hierarchy._parsed.cache_clear()
    data = [np.arange(24, dtype="<i2").reshape(1, 2, 3, 4) + 100 * number for number in range(3)]
    for number, values in enumerate(data):
        zarr.create_array(str(tmp_path / f"{number}.zarr"), name=name or None, data=values, zarr_format=3)

    def read(number: int) -> Any:
        with closing(open_reader(Location(str(tmp_path / f"{number}.zarr"), name, axes="CDHW"))) as reader:
            box = Box.whole(reader.describe().spatial)
            out = np.zeros((1, *box.shape), reader.describe().native_dtype)
            reader.read_into(box, out)
            return out

    for number, values in enumerate(data):
        assert np.array_equal(read(number), values)
    assert len(parsed) == 1
    document = tmp_path / "1.zarr" / name / "zarr.json"
    told = json.loads(document.read_text())
    told["data_type"] = "uint16"
    document.write_text(json.dumps(told))
    assert read(1).dtype == np.uint16
    document.write_text(document.read_text()[:-20])
    with pytest.raises(DataError):
        read(1)
    assert np.array_equal(read(2), data[2])


def test_no_name_leads_out_of_the_folder(tmp_path: Path) -> None:
    """Though there is an array, and one with the same document was read before."""
    values = np.zeros((1, 2, 3, 4), "i2")
    zarr.create_array(str(tmp_path / "outside.zarr"), data=values, zarr_format=3)
    zarr.create_array(str(tmp_path / "group.zarr"), name="x", data=values, zarr_format=3)
    for name in ("../outside.zarr", "x/../../outside.zarr", "./x/../../outside.zarr"):
        with pytest.raises((DataError, NotFoundError, UsageError)):
            open_reader(Location(str(tmp_path / "group.zarr"), name, axes="CDHW"))
