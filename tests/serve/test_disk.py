"""A service with a disk: what it keeps there, for itself and the one after it, and what it does when that fails."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from signal import Signals
from typing import Any

import numpy as np
import pytest

from tests.serve.conftest import Service, Start, until
from tests.serve.talking import Client, client_of, content, expected, octant
from tests.support.settled import settle
from voxload.cache.disk.ledger import LEDGER_BYTES
from voxload.cache.disk.tier import DiskTier
from voxload.cache.memory.tier import MemoryTier
from voxload.serve.asking import Visit

pytestmark = pytest.mark.usefixtures("no_leaks")
LITTLE, MUCH = 14 * 1024, 2**20
"""Bytes of memory: for few of the eight blocks, and for all."""
DISK = 2**20


def use_all(client: Client, volume: Path, numbers: Sequence[int] = range(8)) -> None:
    """Name eight blocks, use some, one after the other, and compare each with what is stored."""
    blocks = [octant(volume, number) for number in range(8)]
    client.name(*blocks)
    client.order(*numbers)
    for place, number in enumerate(numbers):
        for attempt in range(9):
            assert client.want(number, again=int(attempt > 0)) == {"kind": "there", "block": number}
            found = content(client, blocks[number])
            if found is not None:
                break
        assert found is not None
        np.testing.assert_array_equal(found, expected(volume, blocks[number]))
        client.say(kind="reached", place=place + 1)


def settled(service: Service, blocks: int = 8) -> dict[str, Any]:
    """Wait until so many blocks lie on disk, and return the figures."""
    until(lambda: service.figures()["disk"]["blocks"] == blocks)
    return service.figures()


def with_disk(start: Start, tmp_path: Path, *, memory: int = MUCH, size: int = DISK, at: str = "socket") -> Service:
    """Return a service with a disk."""
    service = start(at=tmp_path / "sockets" / at, memory=memory, disk=tmp_path / "disk", disk_size=size)
    assert service.said == "ready"
    return service


@pytest.mark.long
def test_what_memory_has_no_room_for(start: Start, tmp_path: Path, volume: Path) -> None:
    """Is read from the storage once, and from disk from then on."""
    service = with_disk(start, tmp_path, memory=LITTLE)
    with client_of(service) as client:
        use_all(client, volume)
        settled(service)
    with client_of(service) as client:
        use_all(client, volume)
    reads = service.figures()["reads"]
    assert reads["done"] - reads["from_disk"] == 8
    assert reads["from_disk"] > 0


@pytest.mark.parametrize(
    "ends", ["killed", *(pytest.param(one, marks=pytest.mark.long) for one in ("ended", "drained"))]
)
def test_the_next_service_finds_what_lies_there(start: Start, tmp_path: Path, volume: Path, ends: str) -> None:
    """However the one before it ended; what had been in memory alone is there, too, where it was drained."""
    first = with_disk(start, tmp_path)
    with client_of(first) as client:
        use_all(client, volume)
        settled(first)
    if ends == "drained":
        with Visit(first.path, "drain") as visit:
            assert visit.drain() == 8
    if ends == "killed":
        first.send(Signals.SIGKILL)
    else:
        assert first.end() == 0
    second = with_disk(start, tmp_path, at="other")
    with client_of(second) as client:
        use_all(client, volume)
    reads = second.figures()["reads"]
    assert (reads["done"], reads["from_disk"], reads["storage_bytes"]) == (8, 8, 0)


@pytest.mark.long
def test_a_file_that_was_written_anew(start: Start, tmp_path: Path, volume: Path) -> None:
    """Is read anew, by the service that stored its blocks and by the next."""
    first = with_disk(start, tmp_path, memory=LITTLE)
    with client_of(first) as client:
        use_all(client, volume)
        settled(first)
    np.save(volume, -np.load(volume))
    settle(volume)
    with client_of(first) as client:
        use_all(client, volume)
        settled(first)
    first.send(Signals.SIGKILL)
    np.save(volume, 3 * np.load(volume))
    settle(volume)
    second = with_disk(start, tmp_path, at="other")
    with client_of(second) as client:
        use_all(client, volume)
        assert settled(second)["reads"]["from_disk"] == 0


@pytest.mark.long
def test_blocks_that_were_damaged(start: Start, tmp_path: Path, volume: Path) -> None:
    """Are read from the storage again, and stored again: a flipped bit, and a file cut short."""
    first = with_disk(start, tmp_path)
    with client_of(first) as client:
        use_all(client, volume)
        settled(first)
    first.send(Signals.SIGKILL)
    flipped, cut, *others = sorted((tmp_path / "disk").rglob("*.block"))
    assert len(others) == 6
    data = bytearray(flipped.read_bytes())
    data[-7] ^= 1
    flipped.write_bytes(data)
    cut.write_bytes(cut.read_bytes()[:300])
    second = with_disk(start, tmp_path, at="other")
    with client_of(second) as client:
        use_all(client, volume)
        figures = settled(second)
    assert (figures["reads"]["done"], figures["reads"]["from_disk"]) == (8, 6)
    assert figures["disk"]["stored"] == 2


@pytest.mark.long
def test_a_disk_that_is_gone(start: Start, tmp_path: Path, volume: Path) -> None:
    """Or full is done without."""
    service = with_disk(start, tmp_path, memory=LITTLE)
    with client_of(service) as client:
        use_all(client, volume)
        settled(service)
        (tmp_path / "disk").rename(tmp_path / "elsewhere")
    with client_of(service) as client:
        use_all(client, volume)


def test_a_disk_with_little_room(start: Start, tmp_path: Path, volume: Path) -> None:
    """Never has more than that."""
    size = LEDGER_BYTES + 6 * DiskTier.footprint(MemoryTier.footprint(512))
    service = with_disk(start, tmp_path, memory=LITTLE, size=size)
    for _ in range(2):
        with client_of(service) as client:
            use_all(client, volume, [0, 1, 2, 3, 4, 5, 6, 7] * 2)
    figures = settled(service, 6)
    assert figures["disk"]["used"] <= size
    assert sum(path.stat().st_size for path in (tmp_path / "disk").rglob("*.block")) <= size
    assert figures["reads"]["from_disk"] > 0
