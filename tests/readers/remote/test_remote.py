"""Zarr over HTTP, from a real server on the loopback interface."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import zarr

from voxload.errors import DataError, NotFoundError, StorageError, UsageError
from voxload.geometry import Box
from voxload.readers import Location, Reader, find_format, open_reader
from voxload.readers.attributes import read_attribute

pytestmark = pytest.mark.usefixtures("no_leaks", "short_waits")


@dataclass
class Site:
    """A folder served over HTTP with byte ranges and without listings, as object stores do."""

    folder: Path
    """What is served."""
    url: str = ""
    """Where."""
    sent: int = 0
    """Bytes of bodies sent so far."""
    broken: str = ""
    """Paths that contain this answer 503; none when empty."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Guards the count."""

    def answer(self, request: BaseHTTPRequestHandler, *, with_body: bool) -> None:
        """Answer GET or HEAD."""
        path = self.folder / request.path.lstrip("/")
        if self.broken and self.broken in request.path:
            request.send_error(503)
            return
        if not path.is_file():
            request.send_error(404)
            return
        data = path.read_bytes()
        span = request.headers.get("Range")
        if span:
            first, last = span.removeprefix("bytes=").split("-")
            start = int(first) if first else max(0, len(data) - int(last))
            stop = min(int(last) + 1, len(data)) if first and last else len(data)
            request.send_response(206)
            request.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")
            data = data[start:stop]
        else:
            request.send_response(200)
        request.send_header("Accept-Ranges", "bytes")
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        if with_body:
            # Counted before: whoever has the answer may look at the count at once.
            with self.lock:
                self.sent += len(data)
            request.wfile.write(data)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Serve a folder on the loopback interface until the test ends."""
    served = Site(tmp_path)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.answer(self, with_body=True)

        def do_HEAD(self) -> None:
            served.answer(self, with_body=False)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        served.url = f"http://127.0.0.1:{server.server_port}"
        yield served
        server.shutdown()
        thread.join()


def publish(site: Site, stored: np.ndarray) -> None:
    """Put a hierarchy with a sharded volume and a vector on the site."""
    root = zarr.create_group(site.folder / "x.zarr")
    root.create_array("deep/full", data=stored, chunks=(4, 4, 4), shards=(8, 8, 8), dimension_names=("d", "h", "w"))
    root.create_array("unitPar", data=np.array([0.25, 0.5]))
    root.create_group("Header", attributes={"Redshift": 0.5})


def test_http_keeps_the_laws(laws: ModuleType, site: Site) -> None:
    """A sharded array behind HTTP is a Reader; the server cannot list, so the array is found by its name."""
    stored = laws.voxels((16, 8, 8))
    publish(site, stored)
    reader = open_reader(Location(f"{site.url}/x.zarr", "deep/full"))
    laws.check_description(reader, stored[np.newaxis])
    laws.check_refusals(reader)
    laws.check_threads(reader, stored[np.newaxis])
    laws.check_cost(reader)
    bare = open_reader(Location(f"{site.url}/x.zarr/deep/full"))
    assert laws.same_bits(laws.read(bare, bare.describe().whole), stored[np.newaxis])
    assert find_format(f"{site.url}/x.zarr").read_vector(f"{site.url}/x.zarr", "unitPar").tolist() == [0.25, 0.5]
    assert read_attribute(f"{site.url}/x.zarr", "Header@Redshift") == 0.5


def test_only_the_box_travels(laws: ModuleType, site: Site) -> None:
    """One inner chunk of two shards of eight is asked as one range, and each index twice at most."""
    publish(site, laws.voxels((16, 8, 8)))
    reader = open_reader(Location(f"{site.url}/x.zarr", "deep/full"))
    box = Box((0, 0, 0), (4, 4, 4))
    before = site.sent
    laws.read(reader, box)
    index = 8 * 16 + 4
    assert site.sent - before <= reader.cost(box).stored_bytes + index
    assert reader.cost(box).chunks == 1


def _one_error(reader: Reader, laws: ModuleType) -> tuple[type[Exception], str]:
    try:
        laws.read(reader, reader.describe().whole)
    except (DataError, StorageError) as error:
        return type(error), str(error)
    raise AssertionError("no error")


@pytest.mark.parametrize("missing", ["error", "fill"])
def test_a_server_in_trouble_is_no_missing_chunk(laws: ModuleType, site: Site, missing: str) -> None:
    """An answer of 503 is the storage's fault under both policies; zeros in its place would train a network."""
    publish(site, laws.voxels((16, 8, 8)))
    reader = open_reader(Location(f"{site.url}/x.zarr", "deep/full"), missing=missing)
    site.broken = "c/1/0/0"
    kind, message = _one_error(reader, laws)
    assert kind is StorageError
    assert "503" in message
    assert site.url in message


def test_a_missing_shard_is_an_error(laws: ModuleType, site: Site) -> None:
    """An answer of 404 for a chunk names the chunk."""
    publish(site, laws.voxels((16, 8, 8)))
    (site.folder / "x.zarr/deep/full/c/1/0/0").unlink()
    kind, message = _one_error(open_reader(Location(f"{site.url}/x.zarr", "deep/full")), laws)
    assert kind is DataError
    assert "no chunk deep/full/c/1/0/0" in message
    filled = open_reader(Location(f"{site.url}/x.zarr", "deep/full"), missing="fill")
    assert not laws.read(filled, Box((8, 0, 0), (16, 8, 8))).any()


def test_what_is_not_there_is_said(laws: ModuleType, site: Site) -> None:
    """A wrong URL, a wrong name and a silent server are three errors."""
    publish(site, laws.voxels((16, 8, 8)))
    with pytest.raises(UsageError, match="no volume that any reader knows"):
        open_reader(Location(f"{site.url}/y.zarr"))
    with pytest.raises(NotFoundError, match="no array 'other'"):
        open_reader(Location(f"{site.url}/x.zarr", "other"))
    site.broken = "x.zarr"
    with pytest.raises(StorageError, match="503"):
        open_reader(Location(f"{site.url}/x.zarr", "deep/full"))


def test_a_server_that_is_gone_is_the_storages_fault() -> None:
    """A refused connection is neither a missing nor a damaged volume."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        port = server.server_port
    with pytest.raises(StorageError, match=f"127.0.0.1:{port}"):
        open_reader(Location(f"http://127.0.0.1:{port}/x.zarr"))


def test_a_file_url_is_read_like_its_path(laws: ModuleType, site: Site) -> None:
    """The same hierarchy through fsspec's local file system."""
    stored = laws.voxels((16, 8, 8))
    publish(site, stored)
    reader = open_reader(Location(f"file://{site.folder}/x.zarr"))
    laws.check_boxes(reader, stored[np.newaxis])
    (site.folder / "x.zarr/deep/full/c/1/0/0").unlink()
    (site.folder / "x.zarr/deep/full/c/1/0/0").mkdir()
    kind, message = _one_error(open_reader(Location(f"file://{site.folder}/x.zarr")), laws)
    assert kind is DataError
    assert "a directory" in message
