"""LeadReader: one sample, and some time steps, of an array that holds many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from voxload.errors import DataError, UsageError
from voxload.geometry import SPATIAL_AXES, Box
from voxload.readers.axes import lead_box
from voxload.readers.protocol import Lead, Location, Reader, VolumeInfo
from voxload.readers.views.part import PartReader


@dataclass(frozen=True, slots=True)
class _Run:
    """Time steps that follow each other in the array and in what is read of it."""

    first: int
    """The first one's place among those that are read."""
    stored: int
    """Its index in the array."""
    count: int
    """How many."""


class LeadReader(PartReader):
    """Reads boxes of some time steps of a sample as if they were the whole volume; see the Reader contract.

    Channels are those of the steps, one step's behind the other's. Neighbouring steps are read as one; a chunk that
    holds several of them is decoded once.

    Parameters
    ----------
    reader
        Reads what is stored.
    location
        Where the sample is.
    lead
        Which sample, and which steps.
    owns
        Whether `close` closes `reader`, which others may share.

    Raises
    ------
    UsageError
        When the array has an axis N or T of which no index is named, or lacks one of which there is.
    DataError
        When the array has no such sample or step.
    """

    def __init__(self, reader: Reader, location: Location, *, lead: Lead, owns: bool = True) -> None:
        stored = reader.describe()
        self._steps = _checked(stored, lead, location)
        self._lead, self._base = stored.lead, (lead.sample or 0) * stored.steps
        self._runs = _runs(self._steps)
        shape = (len(self._steps) * stored.lead[2], *stored.spatial)
        info = replace(stored, location=location, shape=shape, samples=1, steps=len(self._steps))
        super().__init__(reader, info, owns=owns)

    def _parts(self, box: Box) -> list[tuple[Box, slice]]:
        """See PartReader: a box for each run of steps."""
        channels = self._lead[2]
        spatial, low, high, first, last = box, 0, channels, 0, len(self._steps)
        if len(box.start) > len(SPATIAL_AXES):
            spatial = Box(box.start[1:], box.stop[1:])
            begin, end = lead_box(box.start[0], box.stop[0], self._info.lead)
            first, last, low, high = begin[1], end[1], begin[2], end[2]
        found, width = list[tuple[Box, slice]](), high - low
        for run in self._runs:
            begin_step, end_step = max(run.first, first), min(run.first + run.count, last)
            if begin_step >= end_step or not width:
                continue
            step = self._base + run.stored + begin_step - run.first
            start = step * channels + low
            stop = (step + end_step - begin_step - 1) * channels + high
            rows = slice((begin_step - first) * width, (end_step - first) * width)
            found.append((Box((start, *spatial.start), (stop, *spatial.stop)), rows))
        return found


def _checked(stored: VolumeInfo, lead: Lead, location: Location) -> tuple[int, ...]:
    """Return the steps that are read; refuses a sample and steps that the array cannot have."""
    for axis, given in (("N", lead.sample), ("T", lead.steps)):
        if (axis in stored.axes) != (given is not None):
            raise UsageError(
                str(location),
                found=f"axes {stored.axes!r} and {'no index' if given is None else 'indices'} along {axis}",
                expected=f"{'an index' if given is None else 'none'} along {axis}",
            )
    steps = (0,) if lead.steps is None else lead.steps
    named = ((lead.sample or 0, stored.samples, "sample"), *((step, stored.steps, "time step") for step in steps))
    for index, extent, what in named:
        if not 0 <= index < extent:
            raise DataError(
                str(location),
                found=f"{extent} of axis {'N' if what == 'sample' else 'T'}",
                expected=f"one that has {what} {index}",
                remedy="the file is another one than was listed: list it again",
            )
    return steps


def _runs(steps: Sequence[int]) -> tuple[_Run, ...]:
    """Return runs of steps that follow each other; pure."""
    found: list[_Run] = []
    for place, step in enumerate(steps):
        if found and found[-1].stored + found[-1].count == step:
            found[-1] = replace(found[-1], count=found[-1].count + 1)
        else:
            found.append(_Run(place, step, 1))
    return tuple(found)
