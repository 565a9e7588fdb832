"""OpenSample: a sample whose files are open, so that to describe, to read and to learn it takes one look at these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from voxload.augment import Placement
from voxload.data.known_samples import KnownSample, ReadSample
from voxload.data.layout import FieldLayout
from voxload.data.lists.samples import Sample
from voxload.data.sample_reader import SampleReader
from voxload.data.sample_volumes import SampleVolumes
from voxload.errors import UsageError
from voxload.geometry import Box
from voxload.readers.protocol import ReadCost, Reader, Volume

BlocksOf = Callable[[tuple[int, int, int]], tuple[Box, ...]]
"""Gives a rank's block of each field of a sample of some extents."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a sample is drawn as."""

    index: int
    """Counted from 0, in its list."""
    number: int
    """What is drawn for it follows from."""
    epoch: int
    """For which."""
    repeat: int
    """How often it was drawn before in that."""

    def __post_init__(self) -> None:
        if self.repeat < 0:
            raise UsageError("repeat", found=str(self.repeat), expected="0 or more")


@dataclass(frozen=True, slots=True)
class OpenSample:
    """A sample and the readers of its fields, which are open as long as it is used; for one thread."""

    sample: Sample
    """Where it is."""
    readers: Sequence[Reader]
    """One a field."""
    spatial: tuple[int, int, int]
    """Extents (D, H, W) of what is stored."""
    placement: Placement
    """Where the augmented sample lies in that."""
    search_cost: ReadCost
    """What it took to find out."""
    boxes: tuple[Box, ...]
    """This rank's block of each field, in indices of the augmented sample."""
    layout: tuple[FieldLayout, ...]
    """Shape and type of each block."""
    cutter: SampleReader
    """Reads it."""

    @classmethod
    def of(
        cls,
        sample: Sample,
        readers: Sequence[Reader],
        drawn: Drawn,
        *,
        volumes: SampleVolumes,
        cutter: SampleReader,
        blocks: BlocksOf,
    ) -> OpenSample:
        """Look at the files of a sample; raises as `SampleVolumes.described` and `SampleReader.place` do."""
        infos = volumes.described(drawn.index, sample, readers)
        spatial = volumes.finest(infos)
        placement, cost = cutter.place(sample, drawn.number, epoch=drawn.epoch, repeat=drawn.repeat, spatial=spatial)
        boxes = blocks(placement.extents)
        return cls(sample, readers, spatial, placement, cost, boxes, volumes.layouts(infos, boxes), cutter)

    def read_into(self, volumes: Sequence[Volume]) -> ReadCost:
        """Read its blocks into arrays as `layout` says; return what it cost."""
        if len(volumes) != len(self.readers):
            raise UsageError("volumes", found=f"{len(volumes)} arrays", expected=f"{len(self.readers)} fields")
        found = self.cutter.read(self.sample, self.placement, self.boxes, volumes, readers=self.readers)
        return self.search_cost + found

    def made(self, read: ReadSample) -> KnownSample | None:
        """Return how it is read again as it was just read; None where it cannot be, see `SampleReader.made`."""
        made = self.cutter.made(self.placement, self.boxes, read.volumes, readers=self.readers)
        if made is None:
            return None
        forms = tuple([(volume.shape, volume.strides, volume.dtype) for volume in read.volumes])
        known = KnownSample(forms, tuple(made[0]), made[1], read.cost, read.targets)
        return known.cut(self.placement, self.boxes, self.spatial) if self.cutter.cuts else known
