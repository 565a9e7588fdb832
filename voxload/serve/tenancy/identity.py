"""Identity: whose rights a connection has, as the kernel noted when it was made."""

from __future__ import annotations

import ctypes
import os
import socket
from dataclasses import dataclass

from voxload.errors import StorageError
from voxload.serve.protocol.packets import credentials_of

_SO_PEERGROUPS = getattr(socket, "SO_PEERGROUPS", 59)  # Linux 4.13; Python does not name it
_libc = ctypes.CDLL(None, use_errno=True)
_GROUPS = 65536
"""Groups of a process, at most (NGROUPS_MAX)."""


@dataclass(frozen=True, slots=True, order=True)
class Identity:
    """A set of rights to files.

    Two of one user with other groups are two tenants: one may read what the other may not.
    """

    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    """Supplementary ones, in ascending order."""

    def __str__(self) -> str:
        more = ",".join(map(str, self.groups))
        return f"user {self.uid}, group {self.gid}" + (f" and {more}" if more else "")


def identity_of(connection: socket.socket) -> Identity:
    """Return the rights of who is at the other end of a Unix socket.

    Raises StorageError where the kernel does not say: Linux before 4.13.
    """
    who = credentials_of(connection)
    groups = (ctypes.c_uint32 * _GROUPS)()
    size = ctypes.c_uint32(ctypes.sizeof(groups))
    # Python's own takes a kilobyte at most.
    if _libc.getsockopt(connection.fileno(), socket.SOL_SOCKET, _SO_PEERGROUPS, groups, ctypes.byref(size)):
        reason = os.strerror(ctypes.get_errno())
        raise StorageError("SO_PEERGROUPS", found=reason, expected="Linux 4.13 or later")
    return Identity(who.uid, who.gid, tuple(sorted(groups[: size.value // ctypes.sizeof(ctypes.c_uint32)])))
