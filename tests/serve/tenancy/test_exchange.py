"""Exchange: a block goes to who shows its very file, opened to be read, and to nobody else."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from voxload.errors import DataError
from voxload.serve.tenancy.exchange import Exchange, File, shown
from voxload.serve.tenancy.identity import Identity, identity_of

ONE, OTHER = Identity(1, 1), Identity(2, 2)
DIGEST = "0" * 31 + "a"


def test_descriptors_that_prove_something(tmp_path: Path) -> None:
    """Those of files that were opened to be read."""
    path = tmp_path / "file"
    path.write_bytes(b"x")
    status = path.stat()
    for flags in (os.O_RDONLY, os.O_RDWR):
        descriptor = os.open(path, flags)
        assert shown(descriptor) == File(status.st_dev, status.st_ino)
        os.close(descriptor)


def test_descriptors_that_prove_nothing(tmp_path: Path) -> None:
    """Nobody needs a right to read for these."""
    path = tmp_path / "file"
    path.write_bytes(b"x")
    ours, theirs = socket.socketpair()
    reader, writer = os.pipe()
    found = [
        os.open(path, os.O_PATH),
        os.open(path, os.O_WRONLY),
        os.open(tmp_path, os.O_RDONLY),
        os.open("/dev/null", os.O_RDONLY),
        ours.fileno(),
        reader,
    ]
    for descriptor in found:
        with pytest.raises(DataError, match="a regular file, opened to be read"):
            shown(descriptor)
    for descriptor in (*found[:4], reader, writer):
        os.close(descriptor)
    ours.close()
    theirs.close()


def test_who_has_what() -> None:
    """Of the same file, as long as they say so and are there."""
    exchange, file = Exchange(), File(1, 2)
    exchange.has(ONE, DIGEST, file)
    assert exchange.find(DIGEST, file, besides=OTHER) == ONE
    assert exchange.find(DIGEST, file, besides=ONE) is None
    assert exchange.find(DIGEST, File(1, 3), besides=OTHER) is None
    assert exchange.find("0" * 32, file, besides=OTHER) is None
    exchange.has(OTHER, DIGEST, file)
    exchange.lost(ONE, DIGEST)
    exchange.lost(ONE, DIGEST)
    assert exchange.find(DIGEST, file, besides=ONE) == OTHER
    exchange.gone(OTHER)
    exchange.gone(OTHER)
    assert exchange.find(DIGEST, file, besides=ONE) is None


@pytest.mark.parametrize("digest", ["", "x" * 32, "a" * 31, "a" * 33, "A" * 32])
def test_what_is_no_digest(digest: str) -> None:
    """Is refused."""
    with pytest.raises(DataError, match="hexadecimal"):
        Exchange().has(ONE, digest, File(1, 2))


def test_rights_as_the_kernel_notes_them() -> None:
    """With all groups."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        found = identity_of(ours)
    assert (found.uid, found.gid) == (os.geteuid(), os.getegid())
    assert found.groups == tuple(sorted(os.getgroups()))
