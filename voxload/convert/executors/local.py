"""Machines: the contract of what writes the volumes of a conversion; LocalExecutor, which is this process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Protocol

from voxload.convert.plan.volumeplan import VolumePlan
from voxload.convert.write.checksums import SampleChecksums
from voxload.convert.write.pipeline import Tally
from voxload.convert.write.volume import start_volume

Tell = Callable[[str, int], None]
"""Told the name of a volume and how many more bytes of its voxels are converted, in the calling thread."""


class VolumeExecutor(Protocol):
    """What writes volumes.

    Rules: what is yielded is complete under its final name, checksums included where they are wanted. Closing the
    generator ends the work; what is recorded of unfinished volumes is kept.
    """

    def convert(self, volumes: Sequence[VolumePlan], tell: Tell) -> Generator[Tally, None, None]:
        """Write volumes and yield what was done with each, in any order."""
        ...


class LocalExecutor:
    """This process, which writes one volume after the other.

    Parameters
    ----------
    threads
        Threads that encode.
    checksums
        Where the checksums of volumes are kept; None where none are wanted.
    """

    def __init__(self, threads: int, checksums: SampleChecksums | None = None) -> None:
        self._threads, self._checksums = threads, checksums

    def convert(self, volumes: Sequence[VolumePlan], tell: Tell) -> Generator[Tally, None, None]:
        """Write volumes in order, while the one before gets its final name; raises what `write_volume` raises."""
        with (
            ThreadPoolExecutor(self._threads, thread_name_prefix="voxload-encode") as workers,
            ThreadPoolExecutor(1, thread_name_prefix="voxload-finish") as finisher,
        ):
            ending: deque[tuple[VolumePlan, Future[Tally]]] = deque()
            for volume in volumes:
                advance = partial(tell, volume.manifest.name)
                finish = start_volume(volume, workers, threads=self._threads, advance=advance)
                ending.append((volume, finisher.submit(finish)))
                if len(ending) > 1:
                    yield self._ended(*ending.popleft())
            while ending:
                yield self._ended(*ending.popleft())

    def _ended(self, volume: VolumePlan, ending: Future[Tally]) -> Tally:
        tally = ending.result()
        if self._checksums is not None:
            self._checksums.sum_at(volume.final)
        return tally
