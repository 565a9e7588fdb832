"""write_volume: one volume written by whichever process is sent to it, and by one at a time.

volume_lock: one writer per volume, whoever sent it. A conversion holds its folder's lock, and so nobody else is sent
to the folder. But on a cluster the writers are other processes. A worker that does not answer, because the network is
parted or the process stopped, is taken for dead, and its volume is given to another one while it may still write. So
whoever writes a volume holds the lock of a file beside it, from before the record of the unfinished volume is read
until the volume has its final name. The kernel, or the server of a shared file system, drops the lock with the
process that holds it, or with its machine.

The locks must reach across machines. NFS does that (version 4 frees those of a machine that died after its lease, 90 s
by default), GPFS too, and Lustre when mounted with ``-o flock``; with ``-o localflock`` they hold on one machine only.
A machine that was cut off from its file server for longer than the lease, and comes back, has lost its locks and may
write to the end of the slab at hand: no lock can prevent that, and ``--verify`` finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from voxload.convert.manifest import stored_bytes
from voxload.convert.plan.volumeplan import VolumePlan
from voxload.convert.storage import STORAGES
from voxload.convert.write.completion import is_complete
from voxload.convert.write.pipeline import Tally, convert_chunks
from voxload.convert.write.writer import VolumeWriter, remove_leftovers, temporary_name, writing
from voxload.files.lock import exclusive

TIMEOUT = 60.0
"""Seconds to wait for another writer of a volume: the time it needs for a slab, after which it learns that its work is
not wanted any more."""


@contextmanager
def volume_lock(final: Path, *, patience: float = TIMEOUT) -> Iterator[None]:
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
    with exclusive(_name(final), patience=patience):
        yield


def remove_lock(final: Path) -> None:
    """Remove the lock file that a killed writer left; one that is held stays."""
    if _name(final).exists():
        with exclusive(_name(final), patience=TIMEOUT):
            pass


def _name(final: Path) -> Path:
    return final.with_name(f"{temporary_name(final).name}.lock")


def write_volume(
    volume: VolumePlan, workers: ThreadPoolExecutor, *, threads: int, advance: Callable[[int], None]
) -> Tally:
    """Convert a volume, unless another process did while this one waited for it; else as `convert_chunks`.

    Raises
    ------
    BusyError
        When another process writes it.
    DataError, StorageError
        As `convert_chunks` does.
    """
    return start_volume(volume, workers, threads=threads, advance=advance)()


def start_volume(
    volume: VolumePlan, workers: ThreadPoolExecutor, *, threads: int, advance: Callable[[int], None]
) -> Callable[[], Tally]:
    """Store a volume's chunks as `write_volume` does; return what gives it its final name, to be called once.

    That may be done by another thread, while this one goes on with the next volume. Until then the volume is locked.
    """
    with ExitStack() as stack:
        stack.enter_context(volume_lock(volume.final))
        if is_complete(volume):
            remove_leftovers(volume.final)
            advance(volume.decoded_bytes)
            done = Tally(resumed=volume.decoded_bytes, written=stored_bytes(volume.final, volume.manifest.dataset))
            return lambda: done
        storage = STORAGES[volume.manifest.format](volume.manifest)
        writer = stack.enter_context(VolumeWriter.open(volume.final, volume.manifest, storage=storage))
        tally = convert_chunks(volume, writer, workers=workers, threads=threads, advance=advance)
        held = stack.pop_all()

    def finish() -> Tally:
        with held:
            tally.written = writer.commit().stored_bytes
        return tally

    return finish
