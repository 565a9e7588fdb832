"""write_volume: one volume written by whichever process is sent to it, and by one at a time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from voxload.convert.completion import is_complete
from voxload.convert.manifest import stored_bytes
from voxload.convert.pipeline import Tally, convert_volume
from voxload.convert.store import VolumePlan
from voxload.convert.volume_lock import volume_lock
from voxload.convert.writer import remove_leftovers


def write_volume(
    volume: VolumePlan, workers: ThreadPoolExecutor, *, threads: int, advance: Callable[[int], None]
) -> Tally:
    """Convert a volume, unless another process did while this one waited for it; else as `convert_volume`.

    Raises
    ------
    BusyError
        When another process writes it.
    DataError, StorageError
        As `convert_volume` does.
    """
    with volume_lock(volume.final):
        if not is_complete(volume):
            return convert_volume(volume, workers, threads=threads, advance=advance)
        remove_leftovers(volume.final)
    advance(volume.decoded_bytes)
    return Tally(resumed=volume.decoded_bytes, written=stored_bytes(volume.final, volume.manifest.dataset))
