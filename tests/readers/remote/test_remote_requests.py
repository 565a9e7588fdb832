"""Remote reads as the server sees them: few requests, never too many at once, repeated only where that helps."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.codecs import ShardingCodec, ShardingCodecIndexLocation, ZstdCodec

from tests.support.ranks import printed_by_ranks
from voxload.errors import DataError, StorageError
from voxload.geometry import Box
from voxload.readers import Location, Reader, open_reader
from voxload.readers.remote import RemoteStore, store
from voxload.readers.remote.fetchers import REQUESTS_IN_FLIGHT
from voxload.readers.remote.retries import RetryPolicy
from voxload.readers.zarr.native import NativeZarrReader

pytestmark = pytest.mark.usefixtures("no_leaks", "short_waits")

SHAPE = (32, 32, 32)
SHARDED: dict[str, dict[str, Any]] = {
    "raw": {"compressors": None, "chunks": (8, 8, 8), "shards": (16, 16, 16)},
    "zstd": {"compressors": ZstdCodec(), "chunks": (8, 8, 8), "shards": (16, 16, 16)},
    "index first": {
        "chunks": (16, 16, 16),
        "compressors": None,
        "serializer": ShardingCodec(chunk_shape=(8, 8, 8), index_location=ShardingCodecIndexLocation.start),
    },
}
UNSHARDED: dict[str, dict[str, Any]] = {
    "raw": {"compressors": None, "chunks": (8, 8, 8)},
    "zstd": {"compressors": ZstdCodec(), "chunks": (8, 8, 8)},
}


def publish(server: Any, laws: ModuleType, options: dict[str, Any]) -> np.ndarray:
    """Put an array on the server; return it."""
    stored: np.ndarray = laws.voxels(SHAPE)
    zarr.create_array(server.folder / "x.zarr", data=stored, **options)
    return stored


def opened(server: Any, missing: str = "error") -> NativeZarrReader:
    """Open the array, then count from zero."""
    reader = open_reader(Location(f"{server.url}/x.zarr"), missing=missing)
    assert isinstance(reader, NativeZarrReader)
    server.forget()
    return reader


def failure(reader: Reader, laws: ModuleType) -> tuple[type[Exception], str]:
    """Read the whole volume; return what it raised. The error itself is let go: it holds all that it passed."""
    try:
        laws.read(reader, reader.describe().whole)
    except (DataError, StorageError) as error:
        return type(error), str(error)
    raise AssertionError("no error")


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("options", SHARDED.values(), ids=SHARDED)
@pytest.mark.parametrize(
    ("box", "shards"),
    [
        (Box((16, 0, 16), (32, 16, 32)), 1),
        (Box((6, 6, 6), (26, 26, 26)), 8),
        (Box((0, 0, 0), (18, 18, 16)), 4),
        (Box((9, 17, 1), (10, 18, 31)), 2),
    ],
)
def test_a_block_takes_two_requests_a_shard(
    laws: ModuleType, server: Any, options: dict[str, Any], box: Box, shards: int
) -> None:
    """The server counts one request for a shard's index and one for its chunks; a second read takes one a shard."""
    stored = publish(server, laws, options)
    reader = opened(server)
    for requests in (2 * shards, shards):
        server.forget()
        assert reader.traffic is not None
        before = reader.traffic.counts()
        assert np.array_equal(laws.read(reader, box)[0], stored[box.slices])
        assert len(server.paths) == requests
        assert len(set(server.paths)) == shards
        assert (reader.traffic.counts() - before).requests == requests
    assert server.most <= REQUESTS_IN_FLIGHT


def test_the_cost_of_a_block_takes_no_more_requests(laws: ModuleType, server: Any) -> None:
    """What reading has learnt of shards and chunks is not asked for again; bytes are those that travelled."""
    stored = publish(server, laws, UNSHARDED["zstd"])
    reader = opened(server)
    assert np.array_equal(laws.read(reader, reader.describe().whole)[0], stored)
    server.forget()
    assert reader.cost(reader.describe().whole).chunks == 64
    assert not server.paths
    assert reader.traffic is not None
    assert reader.traffic.counts().bytes >= reader.cost(reader.describe().whole).stored_bytes


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("kind", ["500", "503", "429", "reset", "short"])
@pytest.mark.parametrize("options", [SHARDED["zstd"], {"chunks": (16, 16, 16)}], ids=["sharded", "unsharded"])
def test_every_third_request_failing_loses_nothing(
    laws: ModuleType, server: Any, options: dict[str, Any], kind: str
) -> None:
    """Opening and reading survive a server that fails every third request, and say how often they asked again."""
    stored = publish(server, laws, options)
    server.trouble = lambda number, _path: "" if number % 3 else kind
    reader = open_reader(Location(f"{server.url}/x.zarr"))
    assert isinstance(reader, NativeZarrReader)
    assert reader.traffic is not None
    server.forget()
    before = reader.traffic.counts()
    for box in (Box((6, 6, 6), (26, 26, 26)), Box((0, 0, 0), SHAPE)):
        assert np.array_equal(laws.read(reader, box)[0], stored[box.slices])
    seen = reader.traffic.counts() - before
    assert server.failed >= 5
    assert (seen.requests, seen.retries) == (len(server.paths), server.failed)


@pytest.mark.parametrize(("status", "words"), [("403", "credentials"), ("401", "credentials"), ("400", "400")])
def test_a_refusal_is_not_asked_again(laws: ModuleType, server: Any, status: str, words: str) -> None:
    """What another attempt cannot change ends the read at once, as the storage's fault."""
    publish(server, laws, {"compressors": None, "chunks": SHAPE})
    reader = opened(server)
    server.trouble = lambda _number, _path: status
    kind, message = failure(reader, laws)
    assert kind is StorageError
    assert f"{server.url}/x.zarr/c/0/0/0" in message
    assert words in message
    assert len(server.paths) == 1


def test_an_object_that_is_not_there_is_not_asked_for_again(laws: ModuleType, server: Any) -> None:
    """404 is an answer: the chunk was never written, which is an error or the fill value."""
    publish(server, laws, {"compressors": None, "chunks": SHAPE})
    (server.folder / "x.zarr/c/0/0/0").unlink()
    for missing in ("error", "fill"):
        reader = opened(server, missing)
        if missing == "error":
            kind, message = failure(reader, laws)
            assert kind is DataError
            assert "no chunk c/0/0/0" in message
        else:
            assert not laws.read(reader, reader.describe().whole).any()
        assert len(server.paths) == 1


def test_a_server_that_hangs_is_given_up(laws: ModuleType, server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence ends in StorageError that names URL, attempts and cause, within the time that patience allows."""
    publish(server, laws, {"compressors": None, "chunks": SHAPE})
    monkeypatch.setattr(store, "RETRIES", RetryPolicy(attempts=2, first_wait=0.01, silence=0.2))
    reader = opened(server)
    server.trouble = lambda _number, _path: "hang"
    kind, message = failure(reader, laws)
    assert kind is StorageError
    assert f"{server.url}/x.zarr/c/0/0/0" in message
    assert "2 attempts" in message
    assert len(server.paths) == 2


def _closed_port() -> int:
    """Return a port of the loopback interface at which nothing listens."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_an_address_at_which_nothing_is_is_given_up_soon() -> None:
    """More likely a wrong port than a storage in trouble, as long as nothing there has ever answered."""
    url = f"http://127.0.0.1:{_closed_port()}/x.zarr"
    asked = RemoteStore(url, RetryPolicy(attempts=16, first_attempts=3, first_wait=0.001))
    with pytest.raises(StorageError, match=r"found nothing that answers: .*check host and port"):
        asked.size("zarr.json")
    assert asked.traffic.counts().requests == 3


def test_a_server_that_was_there_is_waited_for() -> None:
    """One that has answered this process, be it that there is nothing, is asked as often as trouble is outlived."""
    with HTTPServer(("127.0.0.1", 0), _Nothing) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        patience = RetryPolicy(attempts=6, first_attempts=3, first_wait=0.001)
        asked = RemoteStore(f"http://127.0.0.1:{server.server_port}/x.zarr", patience)
        assert asked.size("zarr.json") is None
        server.shutdown()
        thread.join()
    with pytest.raises(StorageError, match="no answer in 6 attempts"):
        asked.size("zarr.json")


class _Nothing(BaseHTTPRequestHandler):
    """A server of nothing, which keeps no connection."""

    def do_HEAD(self) -> None:
        """Say so."""
        self.send_error(404)

    def log_message(self, *args: object) -> None:
        """Write no log."""


@pytest.mark.long
def test_requests_in_flight_reach_their_bound_and_keep_to_it(laws: ModuleType, server: Any) -> None:
    """A server that answers nobody before one too many have asked sees as many as may ask, and never that one."""
    stored = publish(server, laws, UNSHARDED["raw"])
    reader = opened(server)
    server.crowd = REQUESTS_IN_FLIGHT + 1
    whole = reader.describe().whole
    found: list[bool] = []
    threads = [
        threading.Thread(target=lambda: found.append(np.array_equal(laws.read(reader, whole)[0], stored)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 3
    assert server.most == REQUESTS_IN_FLIGHT


def test_many_threads_ask_for_an_index_once(laws: ModuleType, server: Any) -> None:
    """Threads that need the same shard at the same time share one request for its index."""
    stored = publish(server, laws, SHARDED["raw"])
    reader = opened(server)
    box = Box((0, 0, 0), (8, 8, 8))
    threads = [threading.Thread(target=laws.read, args=(reader, box)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert np.array_equal(laws.read(reader, box)[0], stored[box.slices])
    assert len(server.paths) == 1 + 8 + 1


def test_a_server_that_ignores_ranges_gives_no_wrong_voxel(laws: ModuleType, server: Any) -> None:
    """Whole objects do without ranges; parts of shards are refused in words, and not asked for again."""
    stored = publish(server, laws, UNSHARDED["zstd"])
    server.knows_ranges = False
    assert np.array_equal(laws.read(opened(server), Box((0, 0, 0), SHAPE))[0], stored)
    zarr.create_array(server.folder / "y.zarr", data=stored, **SHARDED["raw"])
    reader = open_reader(Location(f"{server.url}/y.zarr"))
    server.forget()
    kind, message = failure(reader, laws)
    assert kind is StorageError
    assert "ignores byte ranges" in message
    assert len(server.paths) == len(set(server.paths))


@pytest.mark.parametrize("tag", ['"{}"', 'W/"{}"', ""], ids=["strong", "weak", "date only"])
def test_a_shard_that_changes_under_its_index_is_refused(laws: ModuleType, server: Any, tag: str) -> None:
    """Chunks of another shard than the index was read of are refused, whatever the server tells of versions."""
    publish(server, laws, SHARDED["raw"])
    server.tag = tag
    reader = opened(server)
    laws.read(reader, reader.describe().whole)
    shard = server.folder / "x.zarr/c/0/0/0"
    shard.write_bytes(shard.read_bytes() + b"more")
    kind, message = failure(reader, laws)
    assert kind is DataError
    assert "changed since it was opened" in message
    assert "c/0/0/0" in message


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _swell(path: Path) -> None:
    path.write_bytes(path.read_bytes() + bytes(2**17))


@pytest.mark.parametrize(
    ("options", "damage", "words"),
    [
        (SHARDED["raw"], _cut, "100 bytes, expected at least 132"),
        (SHARDED["raw"], _empty, "c/0/0/0"),
        (SHARDED["raw"], _swell, "c/0/0/0"),
        (UNSHARDED["raw"], _cut, "100 bytes, expected a stored chunk of 1024"),
        (UNSHARDED["raw"], _empty, "an empty file"),
        (UNSHARDED["zstd"], _swell, "expected at most"),
        (UNSHARDED["zstd"], _cut, "chunk (0, 0, 0)"),
    ],
)
def test_damage_is_the_datas_fault(
    laws: ModuleType, server: Any, options: dict[str, Any], damage: Any, words: str
) -> None:
    """A truncated, empty or swollen object is damage under both policies, named by its URL and asked for once."""
    publish(server, laws, options)
    damage(server.folder / "x.zarr/c/0/0/0")
    for missing in ("error", "fill"):
        reader = opened(server, missing)
        kind, message = failure(reader, laws)
        assert kind is DataError
        assert words in message
        assert server.paths.count("/x.zarr/c/0/0/0") == 1


AFTER_A_FORK = """
import os, sys
import numpy as np
from voxload.errors import UsageError
from voxload.readers import Location, open_reader
reader = open_reader(Location(sys.argv[1]))
out = np.empty(reader.describe().shape, reader.describe().native_dtype)
reader.read_into(reader.describe().whole, out)
child = os.fork()
if not child:
    for read in (lambda: reader.read_into(reader.describe().whole, out), lambda: open_reader(Location(sys.argv[1]))):
        try:
            read()
        except UsageError as error:
            print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
reader.read_into(reader.describe().whole, out)
print("parent reads on")
"""
WITHOUT_THE_EXTRA = """
import sys
assert "obstore" not in sys.modules
sys.modules["obstore"] = sys.modules["stamina"] = None
from voxload.errors import UsageError
from voxload.readers import Location, open_reader
for url in ("s3://bucket/x.zarr", "memory://x.zarr"):
    try:
        open_reader(Location(url))
    except UsageError as error:
        print(error)
"""


def _run(folder: Path, script: str, *arguments: str) -> list[str]:
    """Return what a script prints in a process of its own, which has read nothing before."""
    (folder / "run.py").write_text(script)
    return printed_by_ranks(folder / "run.py", *arguments, ranks=1).splitlines()


@pytest.mark.long
def test_a_forked_child_is_told_to_start_otherwise(laws: ModuleType, server: Any, tmp_path: Path) -> None:
    """The threads of obstore stay behind in the parent: the child says so at once, and its parent is not disturbed."""
    publish(server, laws, SHARDED["raw"])
    *told, last = _run(tmp_path, AFTER_A_FORK, f"{server.url}/x.zarr")
    assert len(told) == 2
    assert all("forkserver" in line for line in told)
    assert last == "parent reads on"


@pytest.mark.long
def test_without_the_extra_a_url_names_the_remedy(tmp_path: Path) -> None:
    """A plain installation has no obstore; the error says which one has."""
    lines = _run(tmp_path, WITHOUT_THE_EXTRA)
    assert len(lines) == 2
    assert all('pip install "voxload[remote]"' in line for line in lines)


def test_a_url_without_a_server_is_refused() -> None:
    """A bucket or server must be named."""
    with pytest.raises(ValueError, match="no bucket or server"):
        RemoteStore("s3:///x.zarr")
