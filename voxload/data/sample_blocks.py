"""SampleBlocks: this rank's blocks of listed samples, read into arrays: a VolumeDataset below its items."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from voxload.augment import Augment, Draw
from voxload.data.coarse_grids import CoarseGrids
from voxload.data.columns import Columns
from voxload.data.decoding import Packings
from voxload.data.known_samples import READING, KnownSample, ReadSample, reads_as
from voxload.data.layout import FieldLayout
from voxload.data.lists.samples import RecentSamples, Sample, Samples
from voxload.data.lists.selection import number_of
from voxload.data.open_sample import Drawn, OpenSample
from voxload.data.sample_reader import SampleReader
from voxload.data.sample_repeats import SampleRepeats
from voxload.data.sample_volumes import SampleVolumes
from voxload.data.targets import read_targets
from voxload.geometry import Boundary, Box, Halo
from voxload.grid import ProcessGrid
from voxload.launch.jobgrid import JobGrid
from voxload.readers.generation import Generation
from voxload.readers.handles import Handles
from voxload.readers.protocol import NOTHING, Location, ReadCost, Volume, VolumeInfo
from voxload.readers.settings import may_repeat


class SampleBlocks:
    """What a VolumeDataset does below its items: where a block lies, what its arrays are like, and filling them.

    Who derives from it sets its attributes and calls `use_samples`. Safe to use from many threads.
    """

    job: JobGrid
    """The ranks, or what they will be."""
    halo: Halo
    boundary: Boundary
    target_names: tuple[str, ...]
    columns: Columns
    samples: Samples
    """Where the samples are."""
    coarse: CoarseGrids
    """Which fields are on coarser grids."""
    volumes: SampleVolumes
    """Their open readers, and what is known of them."""
    augment: Augment | None
    epoch: int
    _handles: Handles

    @property
    def grid(self) -> ProcessGrid:
        """The ranks; looked up at first use where only the counts of blocks were given."""
        return self.job()

    @property
    def is_grid_known(self) -> bool:
        """Whether `grid` is looked up already."""
        return self.job.is_known

    @property
    def sample_ids(self) -> Sequence[str]:
        """Ids of the samples, in the order of the indices."""
        return self.samples.ids

    @property
    def field_names(self) -> tuple[str, ...]:
        """Names of the fields, in the order of an item's volumes."""
        return self.samples.fields

    def __len__(self) -> int:
        return len(self.samples.ids)

    def use_samples(self, samples: Samples, cutter: SampleReader) -> None:
        """Have these samples, and what reads them, with nothing known of either; for who makes a data set."""
        self.samples, self.cutter = samples, cutter
        self._recent = RecentSamples(samples)
        self._repeats = SampleRepeats(samples, self._recent, cutter)

    def layout(self, index: int) -> tuple[FieldLayout, ...]:
        """Return shape and type of each field's block of a sample, the same in every epoch; opens its files.

        Raises DataError when the fields of the sample differ in their spatial shape.
        """
        infos = self._describe(index)
        spatial = self.cutter.extents(self.volumes.finest(infos))
        return self.volumes.layouts(infos, self.boxes(spatial))

    def volume_shape(self, index: int) -> tuple[int, int, int]:
        """Return the extents (D, H, W) of a whole sample, of which this rank has a block; opens its files."""
        return self.cutter.extents(self.volumes.finest(self._describe(index)))

    def locations(self, index: int) -> tuple[Location, ...]:
        """Return where each field's volume of a sample is; opens nothing."""
        return self._sample(index).locations

    def generations(self, index: int) -> tuple[Generation | None, ...]:
        """Return the generation of each field's block of a sample as it is stored now; None where none is known.

        Opens its files, reads no voxel, and raises as `voxload.readers.generation.Dated.generation` does. Of a data set
        that is not augmented.
        """
        return self.volumes.generations(self._sample(index), self.boxes, self.boundary)

    def box(self, spatial: tuple[int, ...]) -> Box:
        """Return this rank's box of a sample of extents (D, H, W), halo included; of a field on the finest grid."""
        return next(box for box, ratio in zip(self.boxes(spatial), self.coarse.ratios, strict=True) if max(ratio) == 1)

    def boxes(self, spatial: tuple[int, ...]) -> tuple[Box, ...]:
        """Return this rank's box of each field of a sample of extents (D, H, W), halo included.

        Raises UsageError where a block begins or ends within a voxel of a coarser field.
        """
        return self.coarse.blocks(self.grid, self.halo, tuple(spatial))

    def read_into(
        self, index: int, volumes: Sequence[Volume], *, epoch: int | None = None, repeat: int | None = None
    ) -> ReadCost:
        """Read a sample's blocks into `volumes`, one array per field as `layout` says; return what it cost.

        `epoch` is what `augment` draws for; None takes the data set's own. `repeat` is how often the sample was drawn
        before in that epoch; None takes what the index says, which `voxload.augment.Numbered` counts, else 0. Safe to
        call from many threads at once.
        """
        with self._opened(index, epoch, repeat) as opened:
            return opened.read_into(volumes)

    def read_first(
        self,
        index: int,
        room: Callable[[tuple[FieldLayout, ...]], Sequence[Volume] | None],
        *,
        epoch: int | None = None,
        repeat: int | None = None,
    ) -> tuple[tuple[FieldLayout, ...], ReadSample | None]:
        """Return the layout of a sample's blocks, and the sample, read into what `room` gives; None without room.

        What `layout`, `read_into` and `read_targets` do, with one look at its files. How it is read again is learnt,
        but not of samples that are turned or translated, that no reader of ours reads from this node, or whose files
        changed a moment ago.
        """
        if not self._reads_plainly():
            volumes = room(layout := self.layout(index))
            cost = NOTHING if volumes is None else self.read_into(index, volumes, epoch=epoch, repeat=repeat)
            return layout, None if volumes is None else ReadSample(volumes, cost, self.read_targets(index))
        with self._opened(index, epoch, repeat) as opened:
            volumes = room(opened.layout)
            if volumes is None:
                return opened.layout, None
            read = ReadSample(volumes, opened.read_into(volumes), self.read_targets(index))
            if may_repeat():
                self._repeats.learn(index, read, opened, (self.halo, self.boundary))
            return opened.layout, read

    @contextmanager
    def _opened(self, index: int, epoch: int | None, repeat: int | None) -> Iterator[OpenSample]:
        """Give a sample whose files are open to a block; see `read_into`."""
        sample, place = self._sample(index), self._place(index)
        counted = index.repeat if isinstance(index, Draw) else 0
        number, epoch = number_of(self.samples, place), self.epoch if epoch is None else epoch
        drawn = Drawn(place, number, epoch, counted if repeat is None else repeat)
        with self.volumes.opened(sample) as readers:
            blocks = self.boxes
            opened = OpenSample.of(sample, readers, drawn, volumes=self.volumes, cutter=self.cutter, blocks=blocks)
            self.columns.learn(sample)
            yield opened

    def read_targets(self, index: int) -> torch.Tensor | None:
        """Return a sample's targets as a float32 vector, or None when none were asked for."""
        return read_targets(self._sample(index), self.target_names, self.samples.targets_in_file)

    def row_values(self, index: int) -> tuple[Any, ...]:
        """Return what an item has of `columns`; raises DataError where the catalogue, or the file, says nothing."""
        return self.columns.of(self._sample(index))

    def knows(self, indices: Sequence[int]) -> bool:
        """Tell whether samples, or what they are cut out of, were all read before: `read_again` may have them at once.

        What is no index is for `read_into` to refuse.
        """
        return self._repeats.knows(indices, (self.halo, self.boundary)) and may_repeat() and self._reads_plainly()

    def read_again(
        self,
        indices: Sequence[int],
        arrays: Sequence[Volume],
        *,
        epoch: int | None = None,
        repeats: Sequence[int] | None = None,
    ) -> list[KnownSample] | None:
        """Read samples that it `knows` into arrays ``(samples, C, d, h, w)``, one a field, and return what is known.

        `epoch` and `repeats` are as in `read_into`. None where one of them has to be read by that: its file is not what
        it was, it is cut where it is not known how to read it, or the arrays lie otherwise than those that it was read
        into. What is in the arrays is undefined then. Safe to call from many threads.
        """
        counted = (0,) * len(indices) if repeats is None else repeats
        return self._repeats.read(indices, arrays, epoch=self.epoch if epoch is None else epoch, repeats=counted)

    def _reads_plainly(self) -> bool:
        """Tell whether samples are read as this class does, and not in a way of a subclass's own."""
        return reads_as(type(self), SampleBlocks) and vars(self).keys().isdisjoint(READING)

    def close(self) -> None:
        """Close every open file, one that is being read after that; the next read opens anew."""
        self._repeats.known.clear()
        self._handles.close()

    def _sample(self, index: int) -> Sample:
        return self._recent.at(index)

    def _place(self, index: int) -> int:
        """Return an index counted from 0."""
        return operator.index(index) % len(self)

    def packing(self, index: int) -> tuple[Packings, ...]:
        """Return what the stored numbers of each field of a sample stand for; opens its files where it is not known."""
        return self.volumes.packing(self._place(index), self._sample(index))

    def _describe(self, index: int) -> list[VolumeInfo]:
        """Return what is known of each field's volume."""
        return self.volumes.describe(self._place(index), self._sample(index))
