"""Remote storage of other kinds: S3 as moto serves it, and what fsspec alone knows."""

from __future__ import annotations

import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import fsspec
import h5py
import numpy as np
import pytest
import zarr
from werkzeug.serving import WSGIRequestHandler
from zarr.codecs import GzipCodec, ZstdCodec
from zarr.codecs.numcodecs import Shuffle

from voxload.errors import DataError, NotFoundError, UsageError
from voxload.geometry import Box
from voxload.readers import Location, find_format, open_reader
from voxload.readers.hdf5 import tablecache
from voxload.readers.hdf5.native import NativeHdf5Reader
from voxload.readers.hdf5.tablecache import Tables
from voxload.readers.remote.file import BLOCK_BYTES
from voxload.readers.zarr.native import NativeZarrReader
from voxload.readers.zarr.reader import ZarrReader

pytestmark = pytest.mark.usefixtures("no_leaks")

CUBE = np.arange(16**3, dtype="<i2").reshape(16, 16, 16)
asked: list[str] = []
"""Method and path of each request that moto answered."""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """Serve S3 on the loopback interface, for all tests of this file."""
    from moto.server import ThreadedMotoServer  # noqa: PLC0415 - takes a second

    def note(self: WSGIRequestHandler, *_args: object) -> None:
        asked.append(f"{self.command} {self.path}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WSGIRequestHandler, "log_request", note)  # instead of printing it
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        host, port = server.get_host_and_port()
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ALLOW_HTTP", "true")
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        yield f"http://{host}:{port}"
        server.stop()


@pytest.fixture
def bucket(endpoint: str) -> str:
    """Make a bucket; its name is new, as a process opens each bucket once."""
    name = f"bucket-{uuid.uuid4().hex[:12]}"
    put(f"{endpoint}/{name}", b"")
    return name


def put(url: str, data: bytes) -> None:
    """Upload an object, or make a bucket."""
    # Without a type, urllib calls it a form, which moto waits for in vain.
    who = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=none"
    headers = {"Content-Type": "application/octet-stream", "Authorization": who}
    with urllib.request.urlopen(urllib.request.Request(url, data, headers, method="PUT")):  # noqa: S310 - the loopback
        pass


def upload(folder: Path, url: str) -> None:
    """Upload a folder."""
    for path in folder.rglob("*"):
        if path.is_file():
            put(f"{url}/{path.relative_to(folder)}", path.read_bytes())


@pytest.mark.long
def test_s3_is_read_in_two_requests_a_shard(tmp_path: Path, laws: ModuleType, endpoint: str, bucket: str) -> None:
    """A group in a bucket is listed and read; an octant takes an index and a range a shard, as the server counts."""
    root = zarr.create_group(tmp_path / "x.zarr")
    root.create_array("deep/full", data=CUBE, chunks=(4, 4, 4), shards=(8, 8, 8), compressors=ZstdCodec())
    root.create_array("targets", data=np.array([0.25, 0.5]))
    upload(tmp_path / "x.zarr", f"{endpoint}/{bucket}/some/x.zarr")
    url = f"s3://{bucket}/some/x.zarr"
    assert find_format(url).datasets(url) == ("deep/full",)
    assert find_format(url).read_vector(url, "targets").tolist() == [0.25, 0.5]
    reader = open_reader(Location(url))
    assert isinstance(reader, NativeZarrReader)
    assert reader.describe().route == "native"
    for box, shards in ((Box((8, 0, 8), (16, 8, 16)), 1), (Box((2, 2, 2), (13, 13, 13)), 7)):
        asked.clear()
        assert np.array_equal(laws.read(reader, box)[0], CUBE[box.slices])
        assert sum("/c/" in line for line in asked) <= 2 * 8
        assert len(asked) == 2 * shards + (shards == 7)  # the shard of the first box needs no index any more
    laws.check_boxes(reader, CUBE[np.newaxis])


def test_s3_says_what_is_not_there(tmp_path: Path, laws: ModuleType, endpoint: str, bucket: str) -> None:
    """A missing shard, array and hierarchy are three errors; a changed shard is a fourth."""
    zarr.create_array(tmp_path / "x.zarr", data=CUBE, chunks=(4, 4, 4), shards=(8, 8, 8), compressors=None)
    (tmp_path / "x.zarr/c/1/1/1").unlink()
    base = f"{endpoint}/{bucket}"
    upload(tmp_path / "x.zarr", f"{base}/x.zarr")
    location = Location(f"s3://{bucket}/x.zarr")
    laws.check_fault(location, DataError, ("no chunk c/1/1/1",), fills=True)
    with pytest.raises(NotFoundError, match="without a name"):
        open_reader(Location(f"s3://{bucket}/x.zarr", "full"))
    with pytest.raises(UsageError, match="no volume that any reader knows"):
        open_reader(Location(f"s3://{bucket}/y.zarr"))
    reader = open_reader(location)
    part = Box((0, 0, 0), (8, 8, 8))
    assert np.array_equal(laws.read(reader, part)[0], CUBE[part.slices])
    put(f"{base}/x.zarr/c/0/0/0", bytes((tmp_path / "x.zarr/c/0/0/1").read_bytes()))
    out = np.empty((1, 8, 8, 8), "<i2")
    with pytest.raises(DataError, match="changed since it was opened"):
        reader.read_into(part, out)


def test_hdf5_in_a_bucket_keeps_its_chunk_table(
    tmp_path: Path, laws: ModuleType, endpoint: str, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that opens the object again asks for its chunks only; of another object the index is read anew."""
    monkeypatch.setenv("VOXLOAD_CACHE_DIR", str(tmp_path / "cache"))
    location = Location(f"s3://{bucket}/some/x.h5", "full", axes="DHW")
    for volume, index_requests in ((CUBE, 1), (CUBE, 0), (CUBE[::-1], 1)):
        monkeypatch.setattr(tablecache, "_tables", Tables(2**20))
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file.create_dataset("before", data=np.zeros(2 * BLOCK_BYTES, "u1"))
            file.create_dataset("full", data=volume, chunks=(1, 1, 2), compression="gzip", shuffle=True)
        put(f"{endpoint}/{bucket}/some/x.h5", (tmp_path / "x.h5").read_bytes())
        asked.clear()
        reader = open_reader(location)
        assert isinstance(reader, NativeHdf5Reader)
        opening = len(asked)
        assert laws.same_bits(laws.read(reader, reader.describe().whole)[0], volume)
        assert len(asked) == opening + index_requests + 1
    path = Path(next((tmp_path / "cache").rglob("*.chunks")))
    assert bucket.encode() in path.read_bytes()


@pytest.fixture
def in_memory() -> Iterator[str]:
    """Give a URL of fsspec's memory file system, which is emptied afterwards."""
    name = uuid.uuid4().hex
    yield f"memory://{name}/x.zarr"
    fsspec.filesystem("memory").rm(f"/{name}", recursive=True)


@pytest.mark.parametrize(
    "options",
    [
        {"shards": (8, 8, 8), "compressors": GzipCodec()},
        {"compressors": None},
        {"zarr_format": 2, "compressors": None},
    ],
)
def test_fsspec_urls_keep_the_laws(laws: ModuleType, in_memory: str, options: dict[str, Any]) -> None:
    """What only fsspec knows is read by the same threads and checked by the same rules."""
    zarr.create_array(in_memory, data=CUBE, chunks=(4, 4, 4), **options)
    reader = open_reader(Location(in_memory))
    assert isinstance(reader, NativeZarrReader)
    laws.check_reader(reader, CUBE[np.newaxis])
    assert reader.traffic is not None
    assert reader.traffic.counts().requests > 0
    assert reader.traffic.counts().retries == 0


@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification")
def test_codecs_that_only_zarr_python_knows_are_read_remotely_too(laws: ModuleType, in_memory: str) -> None:
    """zarr-python's own pipeline reads through the same requests."""
    zarr.create_array(in_memory, data=CUBE, chunks=(4, 4, 4), compressors=[Shuffle(elementsize=2)])
    reader = open_reader(Location(in_memory))
    assert isinstance(reader, ZarrReader)
    assert np.array_equal(laws.read(reader, reader.describe().whole)[0], CUBE)
    assert reader.traffic is not None
    assert reader.traffic.counts().bytes >= CUBE.nbytes


def test_a_shard_that_changes_behind_fsspec_is_refused(laws: ModuleType, in_memory: str) -> None:
    """File systems without entity tags are asked for times and sizes instead."""
    zarr.create_array(in_memory, data=CUBE, chunks=(4, 4, 4), shards=(8, 8, 8), compressors=None)
    reader = open_reader(Location(in_memory))
    laws.read(reader, reader.describe().whole)
    with fsspec.open(f"{in_memory}/c/0/0/0", "rb") as shard:
        data = shard.read()
    with fsspec.open(f"{in_memory}/c/0/0/0", "wb") as shard:
        shard.write(data + b"more")
    out = np.empty((1, 16, 16, 16), "<i2")
    with pytest.raises(DataError, match="changed since it was opened"):
        reader.read_into(reader.describe().whole, out)


def test_a_url_that_nobody_knows_is_refused() -> None:
    """An unknown scheme is the caller's error."""
    with pytest.raises(UsageError, match="nosuch"):
        open_reader(Location("nosuch://x.zarr"))
