"""Birth: the process of root's that makes those of tenants, each with the rights of its user from the start.

It has one thread and has imported what tenants need, so that it may fork, and a fork is there in milliseconds. A fork
that gives up its rights, and does not execute another program, may not be traced, nor its files be looked at in
``/proc``, by the user whose rights it has (prctl(2), PR_SET_DUMPABLE): nobody makes it say what is not so.

1. It hears one process, its parent, and ends with that.
2. A child has nothing of root's left: no descriptor but those it was given, no group, no privilege, and no way to
   either.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import signal
import socket
import sys
from contextlib import closing, suppress
from importlib import import_module
from pathlib import Path

from voxload.errors import InternalError
from voxload.serve.protocol.messages import build
from voxload.serve.protocol.packets import Packet, PacketSocket
from voxload.serve.protocol.wire import decoded, encoded
from voxload.serve.tenancy.orders import TO_NURSERY, Bear, Born
from voxload.serve.tenancy.tenant import tenant

_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 4, 38
_LATER = ("h5py", "hdf5plugin", "imagecodecs", "numcodecs", "obstore", "zarr")
"""What readers import when they meet with data that need it: users may not look into the folder of this Python."""
_libc = ctypes.CDLL(None, use_errno=True)
_libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]


def run(connection: socket.socket) -> None:
    """Make processes until the parent hangs up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when to end
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended children are nobody's to wait for
    for name in _LATER:
        with suppress(ImportError):
            import_module(name)
    build()  # by modules and files that users may not read either
    if len(list(Path("/proc/self/task").iterdir())) != 1:
        raise InternalError("nursery", found="threads", expected="one, so that it may fork")
    gc.collect()
    gc.freeze()  # what all have in common stays in common
    packets = PacketSocket(connection)
    packets.send(encoded(Born(os.getpid())))
    while (packet := packets.receive()) is not None:
        with closing(packet):
            _bear(connection, packets, packet)


def _bear(connection: socket.socket, packets: PacketSocket, packet: Packet) -> None:
    order = decoded(packet.words, TO_NURSERY)
    # The child waits for its end of this until there is a descriptor of it: it cannot end, and its number be another's.
    go, ready = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if not pid:
        os.close(ready)
        status = 1
        try:
            os.close(connection.detach())  # not hung up: it is the nursery's still
            os.read(go, 1)
            os.close(go)
            give_up_rights(order)
            tenant(order, packet.descriptors)
            status = 0
        finally:
            os._exit(status)
    os.close(go)
    descriptor = os.pidfd_open(pid)
    try:
        os.write(ready, b"\0")
        packets.send(encoded(Born(pid)), [descriptor])
    finally:
        os.close(ready)
        os.close(descriptor)


def give_up_rights(order: Bear) -> None:
    """Have the rights of a user and their groups, and no other any more; raises OSError where that is not so after."""
    groups = [int(one) for one in order.groups.split(",") if one]
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    os.setgroups(groups)
    os.setresgid(order.gid, order.gid, order.gid)
    os.setresuid(order.uid, order.uid, order.uid)
    # Changing the user made this so, unless it is root still, or the system was told otherwise.
    _prctl(_PR_SET_DUMPABLE, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.umask(0o077)
    if order.uid and os.geteuid() == 0:
        raise PermissionError("the rights of root are still there")
    if order.uid:
        with suppress(PermissionError):
            os.setuid(0)
            raise InternalError("tenant", found="a way back to root", expected="none")


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl {option}")


if __name__ == "__main__":
    run(socket.socket(fileno=int(sys.argv[1])))
