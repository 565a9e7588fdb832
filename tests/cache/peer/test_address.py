"""Addresses of ranks, and requests as bytes."""

from __future__ import annotations

import hashlib
import json
import pickle
import socket
from contextlib import suppress
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voxload.cache.peer.address import (
    PeerAddress,
    far_locations,
    host_identity,
    interface_address,
    job_token,
    public_name,
    route_address,
)
from voxload.cache.peer.messages import Request
from voxload.cache.protocol import BlockKey
from voxload.errors import DataError, UsageError
from voxload.geometry import Boundary, Box

HERE, THERE = "here", "there"
WORDS = st.text(max_size=8)


def test_interfaces() -> None:
    """An interface is named by the system's name for it; an unknown one is refused, with those that there are."""
    assert interface_address("lo") == "127.0.0.1"
    with pytest.raises(UsageError, match=r"'none0'.* of .*lo"):
        interface_address("none0")


def test_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The way to the rendezvous host begins at one of this node's addresses; without a host it is loopback."""
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    assert route_address() == "127.0.0.1"
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    assert route_address() == "127.0.0.1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind((route_address("127.0.0.1"), 0))
    monkeypatch.setenv("MASTER_ADDR", "host.invalid")
    with pytest.raises(UsageError, match=r"'host\.invalid'.*MASTER_ADDR"):
        route_address()


def test_far_locations() -> None:
    """Servers of other nodes are asked, not those of this one; one that only its own node reaches is an error."""
    addresses = {
        0: PeerAddress(HERE, location="tcp://127.0.0.1:5"),
        1: PeerAddress(THERE, location="tcp://10.0.0.7:6"),
        2: PeerAddress(THERE, location="tls://[fd00::1]:7"),
        3: PeerAddress(THERE),
    }
    assert far_locations(addresses, HERE) == {1: "tcp://10.0.0.7:6", 2: "tls://[fd00::1]:7"}
    with pytest.raises(UsageError, match=r"group 0.*name the interface"):
        far_locations(addresses, THERE)
    assert pickle.loads(pickle.dumps(addresses)) == addresses  # noqa: S301 - made here


def test_identity_and_token() -> None:
    """A node is always the same; tokens are long, and never twice the same."""
    assert host_identity() == host_identity()
    assert socket.gethostname() in host_identity()
    assert len(job_token()) == 32
    assert job_token() != job_token()


def test_the_public_name_tells_nothing_of_the_token() -> None:
    """It is the same for all ranks, another one for each job, no part of the token, and no plain hash of it."""
    tokens = [job_token() for _ in range(100)]
    names = [public_name(token) for token in tokens]
    assert len(set(names)) == 100
    assert names == [public_name(token) for token in tokens]
    for token, name in zip(tokens, names, strict=True):
        parts = {token.hex()[at : at + 8] for at in range(57)}
        assert not any(part in name for part in parts)
        assert name not in {hashlib.blake2b(token).hexdigest()[:16], hashlib.sha256(token).hexdigest()[:16]}


def _keys() -> st.SearchStrategy[BlockKey]:
    boxes = st.integers(0, 3).flatmap(
        lambda axes: st.tuples(*[st.tuples(st.integers(-(2**40), 2**40), st.integers(0, 2**40))] * axes).map(
            lambda pairs: Box(tuple(lo for lo, _ in pairs), tuple(lo + size for lo, size in pairs))
        )
    )
    return st.builds(BlockKey, WORDS, WORDS, WORDS, boxes, st.sampled_from(Boundary))


@settings(max_examples=25)
@given(
    key=_keys(),
    dtype=st.sampled_from([np.dtype(word) for word in ("i2", ">u4", "f8", "?", ml_dtypes.bfloat16)]),
    shape=st.lists(st.integers(0, 2**40), max_size=5).map(tuple),
    wait=st.floats(0, 1e6),
)
def test_requests_survive(key: BlockKey, dtype: np.dtype[Any], shape: tuple[int, ...], wait: float) -> None:
    """What is asked for is what is understood."""
    request = Request(key, dtype, shape, wait)
    found = Request.decode(request.encode())
    assert found == request
    assert found.key.digest == key.digest


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.integers() | WORDS, st.lists, max_leaves=5).map(lambda x: str(x).encode())
)
def test_anything_else_is_refused(data: bytes) -> None:
    """Bytes that are no request are an error of the data, never another one."""
    with suppress(DataError):
        Request.decode(data)


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "O"},
        {"dtype": "none"},
        {"shape": [-1]},
        {"shape": [1.5]},
        {"shape": None},
        {"wait": -1},
        {"wait": float("nan")},
        {"wait": float("inf")},
        {"key": ["d", "s", "f", [[0], [1]], "nowhere"]},
        {"key": ["d", "s", "f", [[1], [0]], "zero"]},
        {"key": []},
    ],
)
def test_requests_for_what_is_no_block(change: dict[str, Any]) -> None:
    """Types that hold objects, shapes of less than nothing and waits without an end are refused."""
    good = json.loads(
        Request(BlockKey("d", "s", "f", Box((0,), (1,)), Boundary.ZERO), np.dtype("i2"), (1,), 0.0).encode()
    )
    assert Request.decode(json.dumps(good).encode()).shape == (1,)
    with pytest.raises(DataError, match="request"):
        Request.decode(json.dumps(good | change).encode())
