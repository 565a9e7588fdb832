"""Nursery: makes the processes of tenants, by a process of root's that does nothing else; see birth for that."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing

from voxload.errors import StorageError
from voxload.serve.protocol.packets import PacketSocket
from voxload.serve.protocol.wire import decoded, encoded
from voxload.serve.tenancy.identity import Identity
from voxload.serve.tenancy.orders import OF_NURSERY, Bear

_BIRTH = "voxload.serve.tenancy.birth"
_PATIENCE = 30.0
"""Seconds for a process to be made: the first one waits for what all of them import."""
_ONE_THREAD = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
"""Of libraries that would make threads when they are imported; the last is for pyarrow's allocator (jemalloc(3))."""
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "VIRTUAL_ENV", "PYTHONPATH")
"""Of root's environment."""


class Nursery:
    """The parent's side; used by one thread. It belongs to who made it, and ends with `close`."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        ours.settimeout(_PATIENCE)
        self._packets = PacketSocket(ours)
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        with closing(theirs):
            self._process = subprocess.Popen(
                [sys.executable, "-m", _BIRTH, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**environment, **_ONE_THREAD},
                cwd="/",
            )
        try:
            is_ready = self._packets.receive() is not None
        except OSError:
            is_ready = False
        if not is_ready:
            self._process.kill()
            self.close()
            raise StorageError("nursery", found="its end", expected="a process that makes others")

    def bear(self, identity: Identity, *, memory: int, usable: int, threads: int, descriptors: Sequence[int]) -> int:
        """Make a tenant's process; return a descriptor of it (pidfd_open(2)).

        Parameters
        ----------
        identity
            Whose rights it has.
        memory, usable
            Bytes of its memory, and of what it may use at first.
        threads
            Reads at once, at most.
        descriptors
            Its end of a pair of sockets, its memory to write and to read; they stay the caller's.

        Raises
        ------
        StorageError
            Where it cannot be made.
        """
        groups = ",".join(map(str, identity.groups))
        order = Bear(identity.uid, identity.gid, groups, memory, usable, threads)
        try:
            self._packets.send(encoded(order), descriptors)
            packet = self._packets.receive()
        except OSError as error:
            raise StorageError(f"process of {identity}", found=str(error), expected="one that can be made") from error
        if packet is None or len(packet.descriptors) != 1:
            found = "the end of what makes them" if packet is None else "no descriptor"
            raise StorageError(f"process of {identity}", found=found, expected="one")
        try:
            decoded(packet.words, OF_NURSERY)
        except BaseException:
            packet.close()
            raise
        return packet.descriptors[0]

    def close(self) -> None:
        """Make no more; those that were made live on."""
        self._packets.close()
        self._process.wait()
