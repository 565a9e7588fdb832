"""Packets: whole or refused, with their descriptors or none of them, whatever somebody sends."""

from __future__ import annotations

import array
import json
import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.processes import LIMIT
from voxload.errors import DataError, UsageError
from voxload.serve.protocol.packets import DESCRIPTORS, LONGEST, PacketSocket

pytestmark = pytest.mark.usefixtures("no_leaks")


def _pair() -> tuple[socket.socket, PacketSocket]:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (here, there):
        end.settimeout(LIMIT)
    return here, PacketSocket(there)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, PacketSocket]]:
    """Yield both ends of a connection; the first is as anybody may write to it."""
    here, there = _pair()
    yield here, there
    here.close()
    there.close()


def _open() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a folder that has no other names


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(words=st.dictionaries(st.text(), _JSON, max_size=4), count=st.integers(0, DESCRIPTORS))
def test_what_is_sent_comes(words: dict[str, Any], count: int) -> None:
    """Any object, and as many descriptors, each of the file that was sent."""
    here, there = _pair()
    sender, (reading, writing) = PacketSocket(here), os.pipe()
    try:
        sender.send(words, [writing] * count)
        packet = there.receive()
        assert packet is not None
        assert packet.words == words
        assert len(packet.descriptors) == count
        for descriptor in packet.descriptors:
            assert not os.get_inheritable(descriptor)
            assert os.path.sameopenfile(descriptor, writing)
        packet.close()
        sender.close()
        assert there.receive() is None
    finally:
        sender.close()
        there.close()
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b"7",
        b"null",
        b'{"a":NaN}',
        b'{"a":-Infinity}',
        b"\xff\xfe{}",
        "{}".encode("utf-16"),
        b'{"a":' * 9000,
        b'{"a":' + b"9" * 5000 + b"}",
        b"\0" * LONGEST,
    ],
)
def test_garbage_is_refused(ends: tuple[socket.socket, PacketSocket], data: bytes) -> None:
    """Words that are no JSON object; its descriptors are closed, and what comes next is taken."""
    here, there = ends
    before = _open()
    socket.send_fds(here, [data], [here.fileno()])
    with pytest.raises(DataError, match="packet: found"):
        there.receive()
    assert _open() == before
    here.send(b"{}")
    packet = there.receive()
    assert packet is not None
    assert packet.words == {}


@given(data=st.binary(min_size=1, max_size=200))
def test_any_bytes_are_a_packet_or_refused(data: bytes) -> None:
    """Nothing but DataError comes of bytes from anywhere."""
    here, there = _pair()
    here.send(data)
    try:
        packet = there.receive()
        assert packet is not None
        assert packet.words == json.loads(data)
    except DataError:
        pass
    here.close()
    there.close()


def test_what_is_too_long_is_refused(ends: tuple[socket.socket, PacketSocket]) -> None:
    """By its length, of which a packet's bytes are looked at and no more; nothing of it comes later."""
    here, there = ends
    longest = json.dumps({"a": "x" * (LONGEST - 8)}, separators=(",", ":")).encode()
    assert len(longest) == LONGEST
    here.send(longest)
    packet = there.receive()
    assert packet is not None
    here.send(longest + b" ")
    with pytest.raises(DataError, match=r"found a longer one, expected at most 65536 bytes and 8 descriptors"):
        there.receive()
    here.send(b'{"b":1}')
    packet = there.receive()
    assert packet is not None
    assert packet.words == {"b": 1}
    with pytest.raises(UsageError, match=r"65537 bytes, 0 descriptors"):
        there.send({"a": "x" * (LONGEST - 7)})


def test_more_descriptors_than_allowed_are_closed(ends: tuple[socket.socket, PacketSocket]) -> None:
    """All of them, those that would have been allowed as well."""
    here, there = ends
    before = _open()
    many = array.array("i", [here.fileno()] * (DESCRIPTORS + 5))
    here.sendmsg([b"{}"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, many)])
    with pytest.raises(DataError, match="longer"):
        there.receive()
    assert _open() == before
    with pytest.raises(UsageError, match="9 descriptors"):
        there.send({}, [here.fileno()] * 9)


def test_who_is_there(ends: tuple[socket.socket, PacketSocket]) -> None:
    """The kernel says so."""
    found = ends[1].credentials
    assert (found.pid, found.uid, found.gid) == (os.getpid(), os.geteuid(), os.getegid())
