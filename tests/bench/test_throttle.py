"""The throttled server: what claims about storage are measured against must itself be right."""

from __future__ import annotations

import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.prefetching.served import Extent, tally
from tests.support import processes
from tests.support.throttle.link import BURST, Link
from tests.support.throttle.process import Served, ThrottledStorage, throttled_storage

RATE = 4e6
LATENCY = 0.02


@pytest.fixture(scope="module")
def content() -> bytes:
    """Return what the file holds."""
    return os.urandom(300_000)


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> Iterator[ThrottledStorage]:
    """Serve one file."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "a").mkdir()
    (folder / "a" / "b").write_bytes(content)
    with throttled_storage(folder, bandwidth=RATE, latency=LATENCY) as running:
        yield running


def _get(storage: ThrottledStorage, path: str = "/a/b", **headers: str) -> bytes:
    request = urllib.request.Request(storage.url + path, headers=headers)  # noqa: S310 - a server of our own
    with urllib.request.urlopen(request, timeout=processes.LIMIT) as answer:  # noqa: S310 - as above
        body: bytes = answer.read()
    return body


@pytest.mark.parametrize(
    ("asked", "span"),
    [("0-9", slice(0, 10)), ("7-", slice(7, None)), ("-5", slice(-5, None)), ("299990-400000", slice(-10, None))],
)
def test_ranges_are_those_of_the_file(storage: ThrottledStorage, content: bytes, asked: str, span: slice) -> None:
    """First and last byte, an open end, and a suffix; an end behind the file's is the file's."""
    assert _get(storage, Range=f"bytes={asked}") == content[span]


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/a/c", {}, 404),
        ("/a", {}, 404),
        ("/../../etc/passwd", {}, 404),
        ("/a/b", {"Range": "bytes=300000-"}, 416),
        ("/a/b", {"If-Match": '"another"'}, 412),
    ],
)
def test_what_is_not_there_is_refused(
    storage: ThrottledStorage, path: str, headers: dict[str, str], status: int
) -> None:
    """Nothing outside the folder is served, nor a range or version that the file does not have."""
    with pytest.raises(urllib.error.HTTPError) as caught:
        _get(storage, path, **headers)
    assert caught.value.code == status
    caught.value.close()


def test_clients_share_the_bandwidth(storage: ThrottledStorage, content: bytes) -> None:
    """Four clients at once get no more than one, whatever the machine does, and the log has every byte."""
    storage.forget()
    begin = time.perf_counter()
    with ThreadPoolExecutor(4) as pool:
        bodies = list(pool.map(lambda _: _get(storage), range(4)))
    seconds = time.perf_counter() - begin
    assert bodies == [content] * 4
    assert seconds >= 4 * len(content) / RATE - BURST + LATENCY
    assert storage.served() == [Served("a/b", 0, len(content))] * 4


def test_every_request_waits(storage: ThrottledStorage) -> None:
    """One byte costs the latency."""
    begin = time.perf_counter()
    _get(storage, Range="bytes=0-0")
    assert time.perf_counter() - begin >= LATENCY


@given(
    rate=st.floats(1.0, 1e9),
    takes=st.lists(st.tuples(st.floats(0.0, 2.0), st.integers(0, 10**6)), min_size=1, max_size=40),
)
def test_no_span_of_time_passes_more_than_its_share(rate: float, takes: list[tuple[float, int]]) -> None:
    """In the time from any request on, no more passes than rate and savings allow; order is kept."""
    link, now, passed = Link(rate), 100.0, []
    for pause, nbytes in takes:
        now += pause
        passed.append((now, link.take(nbytes, now=now), nbytes))
    for first, (begin, _, _) in enumerate(passed):
        total = 0
        for _, end, nbytes in passed[first:]:
            total += nbytes
            assert total <= rate * (end - begin + BURST) * (1 + 1e-9) + 1e-3
    ends = [end for _, end, _ in passed]
    assert ends == sorted(ends)


def test_a_tally_tells_voxels_from_the_rest() -> None:
    """Bytes in gaps and of other files are no voxels; the byte served least and most often are found."""
    log = [Served("x", 0, 10), Served("x", 8, 20), Served("meta", 0, 7), Served("x", 0, 0)]
    found = tally(log, [Extent("x", 4, 12), Extent("x", 16, 20)])
    assert (found.requests, found.data_bytes, found.other_bytes) == (4, 14, 15)
    assert (found.least, found.most) == (1, 2)
