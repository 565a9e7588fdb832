"""write_volume: one volume written by whichever process is sent to it, and by one at a time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from voxload.convert.completion import is_complete
from voxload.convert.manifest import stored_bytes
from voxload.convert.pipeline import Tally, convert_chunks
from voxload.convert.store import STORAGES, VolumePlan
from voxload.convert.volume_lock import volume_lock
from voxload.convert.writer import VolumeWriter, remove_leftovers


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
