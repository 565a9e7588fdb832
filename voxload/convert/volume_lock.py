"""volume_lock: one writer per volume, whoever sent it.

A conversion holds its folder's lock, and so nobody else is sent to the folder. But on a cluster the writers are other
processes. A worker that does not answer, because the network is parted or the process stopped, is taken for dead, and
its volume is given to another one while it may still write. So whoever writes a volume holds the lock of a file beside
it, from before the record of the unfinished volume is read until the volume has its final name. The kernel, or the
server of a shared file system, drops the lock with the process that holds it, or with its machine.

The locks must reach across machines. NFS does that (version 4 frees those of a machine that died after its lease, 90 s
by default), GPFS too, and Lustre when mounted with ``-o flock``; with ``-o localflock`` they hold on one machine only.
A machine that was cut off from its file server for longer than the lease, and comes back, has lost its locks and may
write to the end of the slab at hand: no lock can prevent that, and ``--verify`` finds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from voxload.convert.lock import alone
from voxload.convert.writer import temporary_name, writing

PATIENCE = 60.0
"""Seconds to wait for another writer of a volume: the time it needs for a slab, after which it learns that its work is
not wanted any more."""


@contextmanager
def volume_lock(final: Path, *, patience: float = PATIENCE) -> Iterator[None]:
    """Hold the only right to write the volume at `final`.

    Raises
    ------
    BusyError
        When another process writes it for longer than `patience`, in s.
    StorageError
        When the file system has no locks or refuses the file.
    """
    with writing(final):
        final.parent.mkdir(exist_ok=True)
    with alone(_name(final), patience=patience):
        yield


def remove_lock(final: Path) -> None:
    """Remove the lock file that a killed writer left; one that is held stays."""
    if _name(final).exists():
        with alone(_name(final), patience=PATIENCE):
            pass


def _name(final: Path) -> Path:
    return final.with_name(f"{temporary_name(final).name}.lock")
