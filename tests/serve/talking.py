"""A client of a service that says what it is told to, whether that makes sense or not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tests.serve.conftest import Service
from tests.support import processes
from voxload.cache.memory.attached import AttachedMemory
from voxload.data.layout import FieldLayout
from voxload.geometry import Boundary, Box
from voxload.readers.protocol import Location, Missing
from voxload.serve.keeping.storedblocks import StoredBlocks
from voxload.serve.protocol.blocktable import ServedBlock, line, table
from voxload.serve.protocol.bulk import lent
from voxload.serve.protocol.packets import PacketSocket

SIDE = 8
"""Of the volume, of which there are eight blocks."""
HELLO: dict[str, Any] = {"kind": "hello", "first": 1, "last": 1, "build": "test", "name": "a job"}


def octant(volume: Path, number: int, **change: Any) -> ServedBlock:
    """Return one of eight blocks."""
    half = SIDE // 2
    begin = tuple(half * (number >> axis & 1) for axis in range(3))
    box = Box(begin, tuple(lo + half for lo in begin))
    words: dict[str, Any] = {
        "location": Location(str(volume), axes="CDHW"),
        "box": box,
        "boundary": Boundary.ZERO,
        "missing": Missing.ERROR,
        "layout": FieldLayout((2, half, half, half), np.dtype(np.int32)),
    }
    return ServedBlock(**{**words, **change})


class Client:
    """A client that says what it is told to."""

    def __init__(self, packets: PacketSocket) -> None:
        self.packets = packets
        packets.send(HELLO)
        assert self.hear()["kind"] == "welcome"
        packet = packets.receive()
        assert packet is not None
        with closing(packet):
            assert packet.words["kind"] == "memory"
            self.descriptor = os.dup(packet.descriptors[0])
            self.memory = AttachedMemory("memory", descriptor=self.descriptor)

    def hear(self) -> dict[str, Any]:
        """Return what the service says next; nothing where it has hung up."""
        packet = self.packets.receive()
        if packet is None:
            return {}
        with closing(packet):
            return dict(packet.words)

    def say(self, data: bytes | None = None, **words: Any) -> None:
        """Send a message, with memory that holds `data`."""
        if data is None:
            self.packets.send(words)
            return
        descriptor = lent("test", data)
        try:
            self.packets.send(words, [descriptor])
        finally:
            os.close(descriptor)

    def name(self, *blocks: ServedBlock) -> None:
        """Name blocks."""
        self.say(table(blocks), kind="blocks", count=len(blocks))

    def order(self, *uses: int, place: int = 0) -> None:
        """Say what is used from a place on."""
        self.say(np.array(uses, "<i8").tobytes(), kind="order", place=place, count=len(uses))

    def want(self, block: int, *, again: int = 0) -> dict[str, Any]:
        """Wait for a block."""
        self.say(kind="want", block=block, again=again)
        return self.hear()


@contextmanager
def client_of(service: Service) -> Iterator[Client]:
    """Give a client to a block of code."""
    packets = PacketSocket.connect(os.fspath(service.path), processes.LIMIT)
    with closing(packets):
        client = Client(packets)
        try:
            yield client
        finally:
            client.memory.close()
            os.close(client.descriptor)


def content(client: Client, block: ServedBlock) -> np.ndarray[Any, Any] | None:
    """Return a block as the memory has it under the key that it has now; None where it is not there."""
    stored = StoredBlocks(lambda _number: line(block))
    key = stored.key(0)
    stored.close()
    assert key is not None
    out = np.empty(block.layout.shape, block.layout.dtype)
    return out if client.memory.get_into(key, out) else None


def expected(volume: Path, block: ServedBlock) -> np.ndarray[Any, Any]:
    """Return a block as it is stored."""
    found: np.ndarray[Any, Any] = np.load(volume)[(slice(None), *block.box.slices)]
    return found
