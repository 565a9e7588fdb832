"""Door: the Unix socket of a service that is one user's.

The socket lies in a folder that its user alone may write into, and other users, but root, are not let in.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

from voxload.errors import StorageError, UsageError
from voxload.files.private import PrivateFolder
from voxload.serve.protocol.packets import credentials_of
from voxload.serve.reception import Reception

_BREATH = 0.1
"""Seconds until the next connection is taken where the process has no descriptor for one."""
_LONGEST_PATH = 107
"""Bytes of a socket's (unix(7))."""
_NO_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Door:
    """Lets clients in until `shut`; made and used within one running event loop.

    Parameters
    ----------
    path
        Of the socket; its folder is made, for this user alone, where it is not there.
    reception
        Hears who is let in.

    Raises
    ------
    UsageError
        Where another service listens there, something else than a socket lies there, or the path is too long for one.
    StorageError
        Where the folder is not this user's alone, or cannot be written to.
    """

    def __init__(self, path: Path, reception: Reception) -> None:
        self.path, self._reception = path, reception
        self._loop = asyncio.get_running_loop()
        self._lock = locked(path)
        try:
            self._listener = listening(path)
        except BaseException:
            os.close(self._lock)
            raise
        self._loop.add_reader(self._listener, self._accept)

    def shut(self) -> None:
        """Let nobody in any more. The socket is removed, so that nobody knocks in vain."""
        if self._listener.fileno() >= 0:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            with suppress(FileNotFoundError):
                self.path.unlink()

    def close(self) -> None:
        """Let nobody in any more, and another service listen there."""
        self.shut()
        os.close(self._lock)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno in _NO_ROOM:
                self._reception.relieve()
                self._loop.remove_reader(self._listener)
                self._loop.call_later(_BREATH, self._listen)
            return
        uid = credentials_of(connection).uid
        if uid in (os.geteuid(), 0):
            self._reception.admit(connection)
        else:
            self._reception.refuse(connection, f"user {uid} is not the service's", "start one of your own")

    def _listen(self) -> None:
        if self._listener.fileno() >= 0:  # not closed meanwhile
            self._loop.add_reader(self._listener, self._accept)


def locked(path: Path) -> int:
    """Make a socket's folder where it is not there, and return the lock of who may listen in it; raises as `Door`."""
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise UsageError(
            str(path),
            found=f"{len(os.fsencode(path))} bytes",
            expected=f"at most {_LONGEST_PATH}, as sockets' paths are",
        )
    try:
        folder = PrivateFolder.make(path.parent)
        try:
            lock, _ = folder.file(f"{path.name}.lock", os.O_RDWR | os.O_CREAT)
        finally:
            folder.close()
    except OSError as error:
        raise StorageError(
            str(path.parent),
            found=error.strerror or str(error),
            expected="a folder of this user's alone",
            remedy="make it, or name another place by --socket",
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise UsageError(str(path), found="a service that listens there", expected="none", remedy="stop it") from None
    return lock


def listening(path: Path, *, mode: int = 0o600, kind: int = socket.SOCK_SEQPACKET) -> socket.socket:
    """Return a socket of a kind that listens; one that a killed service left is removed. Raises as `Door`.

    `mode` says who may connect.
    """
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise UsageError(str(path), found="something else", expected="a socket, or nothing", remedy="name another")
    listener = socket.socket(socket.AF_UNIX, kind | socket.SOCK_CLOEXEC)
    try:
        with suppress(FileNotFoundError):
            path.unlink()
        listener.bind(os.fspath(path))
        path.chmod(mode)
        listener.listen(socket.SOMAXCONN)
        listener.settimeout(0)
    except OSError as error:
        listener.close()
        raise StorageError(str(path), found=os.strerror(error.errno or 0), expected="a place for a socket") from error
    return listener
