"""The native Zarr route: any array against plain numpy, fill values, and shards that come and go."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from zarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    ShardingCodec,
    ShardingCodecIndexLocation,
    TransposeCodec,
    ZstdCodec,
)
from zarr.codecs.numcodecs import Shuffle

from voxload.errors import DataError, UsageError
from voxload.geometry import Box
from voxload.readers import Location, open_reader
from voxload.readers.team import default_threads, set_threads
from voxload.readers.zarr.native import NativeZarrReader
from voxload.readers.zarr.openshards import OpenShards
from voxload.readers.zarr.reader import ZarrReader

pytestmark = pytest.mark.usefixtures("no_leaks")

CUBE = np.arange(8 * 8 * 8, dtype="<i2").reshape(8, 8, 8)
COMPRESSORS: tuple[Any, ...] = (
    GzipCodec(level=1),
    ZstdCodec(level=1, checksum=True),
    BloscCodec(cname="zstd", shuffle="shuffle"),
    BloscCodec(cname="lz4", shuffle="bitshuffle"),
    BloscCodec(cname="blosclz", shuffle="noshuffle"),
)


@st.composite
def codecs(draw: st.DrawFn, ndim: int) -> list[Any]:
    """Draw the codecs of a chunk: transpositions, an order of bytes, a compressor, and checksums around it."""
    chain: list[Any] = [
        TransposeCodec(order=order) for order in draw(st.lists(st.permutations(range(ndim)), max_size=2))
    ]
    chain.append(BytesCodec(endian=draw(st.sampled_from(["little", "big"]))))
    chain += [Crc32cCodec()] * draw(st.integers(0, 1))
    chain += draw(st.lists(st.sampled_from(COMPRESSORS), max_size=1))
    return chain + [Crc32cCodec()] * draw(st.integers(0, 1))


@st.composite
def arrays(draw: st.DrawFn) -> dict[str, Any]:
    """Draw what `zarr.create_array` takes to make an array of three or four axes of format 2 or 3."""
    ndim = draw(st.sampled_from([3, 4]))
    extents = st.lists(st.integers(1, 4), min_size=ndim, max_size=ndim).map(tuple)
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=ndim, max_size=ndim)))
    chunks = draw(extents)
    kind = draw(st.sampled_from(["i1", "u2", "i2", "f2", "f4", "u8", "?"]))
    made: dict[str, Any] = {"shape": shape, "chunks": chunks, "dtype": np.dtype(kind)}
    if draw(st.booleans()):
        compressor = draw(st.sampled_from([None, numcodecs.Zlib(1), numcodecs.GZip(1), numcodecs.Zstd(1)]))
        dtype = np.dtype(kind).newbyteorder(draw(st.sampled_from("<>")))
        order = draw(st.sampled_from("CF"))
        return {**made, "dtype": dtype, "zarr_format": 2, "compressors": compressor, "order": order}
    chain = draw(codecs(ndim))
    if draw(st.booleans()):
        index = (BytesCodec(), Crc32cCodec())[: draw(st.integers(1, 2))]
        where = draw(st.sampled_from(ShardingCodecIndexLocation))
        chain = [ShardingCodec(chunk_shape=chunks, codecs=chain, index_codecs=index, index_location=where)]
        made["chunks"] = tuple(a * b for a, b in zip(chunks, draw(extents), strict=True))
    turns = [codec for codec in chain if isinstance(codec, TransposeCodec)]
    serializer, *rest = chain[len(turns) :]
    return {**made, "filters": turns or None, "serializer": serializer, "compressors": rest or None}


@given(data=st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_array_equals_numpys_slice(
    laws: ModuleType, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Any mix of format, type, chunks, shards, axes and codecs is read natively, to the bit, with its fill value."""
    options = data.draw(arrays())
    path = tmp_path_factory.mktemp("any") / "x.zarr"
    fill = laws.voxels((1,), options["dtype"], seed=3)[0]
    array = zarr.create_array(path, **options, fill_value=fill, config={"write_empty_chunks": True})
    axes = "DHW" if len(options["shape"]) == 3 else "DHWC"
    written = data.draw(laws.inner_boxes(options["shape"][:3]))
    array[written.slices] = laws.voxels((*written.shape, *options["shape"][3:]), options["dtype"])
    whole = laws.to_volume(np.asarray(array[...]).astype(options["dtype"]), axes)
    with closing(open_reader(Location(str(path), axes=axes), missing="fill")) as reader:
        assert reader.describe().route == "native"
        for box in (reader.describe().whole, data.draw(laws.inner_boxes(whole.shape[1:]))):
            assert laws.same_bits(laws.read(reader, box), whole[(slice(None), *box.slices)])


def _make(path: Path, **options: Any) -> Location:
    zarr.create_array(path, data=CUBE, **{"chunks": (4, 4, 4), "compressors": None, **options})
    return Location(str(path))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (lambda: {"zarr_format": 2, "compressors": numcodecs.BZ2()}, "codec bz2"),
        (lambda: {"zarr_format": 2, "filters": [numcodecs.Delta("<i2")]}, "filters delta"),
        (lambda: {"compressors": [GzipCodec(), BloscCodec()]}, "a compressor behind another"),
        (lambda: {"compressors": [Shuffle(elementsize=2)]}, "codec numcodecs.shuffle"),
    ],
)
@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification")
def test_what_the_native_route_refuses_is_still_read(
    laws: ModuleType, tmp_path: Path, options: Callable[[], dict[str, Any]], reason: str
) -> None:
    """Codecs that are not read natively are read by zarr-python, and the description says which and why."""
    with closing(open_reader(_make(tmp_path / "x.zarr", **options()))) as reader:
        assert isinstance(reader, ZarrReader)
        assert reader.describe().route == f"zarr-python: {reason}"
        assert laws.same_bits(laws.read(reader, reader.describe().whole), CUBE[np.newaxis])


def test_a_fill_value_that_format_2_does_not_name_is_zero(tmp_path: Path) -> None:
    """Format 2 may leave the fill value undefined; zarr-python reads zeros then."""
    zarr.create_array(tmp_path / "x", shape=(4, 4, 4), chunks=(2, 2, 2), dtype="<i2", zarr_format=2, fill_value=None)
    with closing(open_reader(Location(str(tmp_path / "x")), missing="fill")) as reader:
        out = np.full((1, 4, 4, 4), 7, "<i2")
        reader.read_into(reader.describe().whole, out)
    assert not out.any()


@pytest.mark.parametrize("options", [{}, {"compressors": GzipCodec()}, {"shards": (8, 8, 8)}])
def test_a_pipe_in_a_chunks_place_is_refused_at_once(tmp_path: Path, options: dict[str, Any]) -> None:
    """Opening a pipe waits for its writer, which a read must not."""
    location = _make(tmp_path / "x.zarr", **options)
    victim = tmp_path / "x.zarr/c/0/0/0"
    victim.unlink()
    os.mkfifo(victim)
    with closing(open_reader(location)) as reader, pytest.raises(DataError, match=r"x\.zarr"):
        reader.read_into(Box((0, 0, 0), (8, 8, 8)), np.empty((1, 8, 8, 8), "<i2"))


def test_a_shard_that_changes_under_its_index_is_refused(tmp_path: Path) -> None:
    """Chunks of a shard that was written again lie elsewhere than the index says that was read before."""
    location = _make(tmp_path / "x.zarr", shards=(8, 8, 8))
    out = np.empty((1, 8, 8, 8), "<i2")
    with closing(open_reader(location)) as reader:
        reader.read_into(reader.describe().whole, out)
        with (tmp_path / "x.zarr/c/0/0/0").open("ab") as shard:
            shard.write(b"more")
        with pytest.raises(DataError, match="changed since it was opened"):
            reader.read_into(reader.describe().whole, out)


def test_a_closed_reader_reads_no_more(tmp_path: Path) -> None:
    """Reading after `close` is misuse and says so."""
    reader = open_reader(_make(tmp_path / "x.zarr"))
    reader.close()
    with pytest.raises(UsageError, match="a closed reader"):
        reader.read_into(Box((0, 0, 0), (8, 8, 8)), np.empty((1, 8, 8, 8), "<i2"))


@pytest.mark.long
def test_few_open_shards_serve_many_threads(tmp_path: Path) -> None:
    """Threads that need more shards than stay open take them from each other, and never one that is in use."""
    path = tmp_path / "x.zarr"
    _make(path, chunks=(1, 4, 4), shards=(2, 4, 4), compressors=GzipCodec())
    reader = open_reader(Location(str(path)))
    assert isinstance(reader, NativeZarrReader)
    shards = reader._chunks
    assert isinstance(shards, OpenShards)
    shards._capacity = 1

    def read(seed: int) -> bool:
        starts = np.random.default_rng(seed).integers(0, 8, (20, 3))
        out = np.empty((1, 8, 8, 8), "<i2")
        right = True
        for start in starts:
            box = Box(tuple(map(int, start)), (8, 8, 8))
            part = out[(slice(None), *box.relative_to(start.tolist()).slices)]
            reader.read_into(box, part)
            right &= np.array_equal(part[0], CUBE[box.slices])
        return right

    with closing(reader), ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(24)))
        assert len(shards._shards) <= 1


def _lose_object(path: Path) -> None:
    (path / "c/0/0/0").unlink()


def _damage_two_chunks(path: Path) -> None:
    for key in ("c/0/1/0", "c/0/1/1", "c/1/0/0"):
        os.truncate(path / key, 5)


@pytest.mark.parametrize(
    ("damage", "words"),
    [(_lose_object, r"chunk \(0, 0, 0\): no chunk c/0/0/0"), (_damage_two_chunks, r"chunk \(0, 1, 0\): ")],
)
def test_the_first_fault_is_named_however_many_threads(
    tmp_path: Path, damage: Callable[[Path], None], words: str
) -> None:
    """Of several broken chunks the error names the first, so that two runs say the same."""
    location = _make(tmp_path / "x.zarr", compressors=GzipCodec())
    damage(tmp_path / "x.zarr")
    set_threads(4)
    try:
        with closing(open_reader(location)) as reader:
            for _ in range(20):
                with pytest.raises(DataError, match=words):
                    reader.read_into(reader.describe().whole, np.empty((1, 8, 8, 8), "<i2"))
    finally:
        set_threads(default_threads())
