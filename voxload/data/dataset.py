"""VolumeDataset: samples, a grid and a halo become this rank's blocks."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any, cast

import torch
from torch.utils.data import Dataset

from voxload.augment import Augment, Draw
from voxload.data.coarse_grids import CoarseGrids
from voxload.data.columns import Columns
from voxload.data.decoding import Packings, decoded
from voxload.data.item_transforms import ItemTransform, item_transform
from voxload.data.known_samples import READING, KnownSample, ReadSample, reads_as
from voxload.data.layout import FieldLayout, new_blocks
from voxload.data.lists.listing import Parts
from voxload.data.lists.names import digest_of
from voxload.data.lists.patches import Patches
from voxload.data.lists.samples import Axes, Fields, Reading, RecentSamples, Sample, Samples, list_samples
from voxload.data.lists.selection import Indices, chosen_by, number_of, selected
from voxload.data.lists.sources import Source
from voxload.data.lists.window import Window
from voxload.data.open_sample import Drawn, OpenSample
from voxload.data.parting import parting_of
from voxload.data.sample_reader import SampleReader
from voxload.data.sample_repeats import SampleRepeats
from voxload.data.sample_volumes import SampleVolumes
from voxload.data.targets import read_targets
from voxload.errors import UsageError
from voxload.geometry import Boundary, Box, Halo
from voxload.grid import ProcessGrid
from voxload.launch.jobgrid import JobGrid
from voxload.readers.cfpacking import Packed
from voxload.readers.generation import Generation
from voxload.readers.handles import Handles
from voxload.readers.protocol import NOTHING, Location, Missing, ReadCost, Volume, VolumeInfo
from voxload.readers.settings import may_repeat


class VolumeDataset(Dataset[tuple[torch.Tensor, ...]]):
    """A map-style data set whose items are this rank's blocks of large 3-D samples.

    Item ``i`` is a tuple: one tensor ``(C, d, h, w)`` of the stored type per field, then, when targets were
    asked for, one float32 tensor of targets. Nothing is opened before the first item is read; the object can
    be forked, pickled and used from many threads.

    With `augment`, items are blocks of augmented samples: everything that is said of a sample, its extents, boxes and
    halo, is then said of the augmented one. What is drawn follows from the augmentation's seed, `epoch`, the sample's
    index and how often it was drawn before in the epoch, so the ranks of a group have blocks of one sample.

    Parameters
    ----------
    source
        A catalogue (its path, its folder or the object), a glob, a file, the fsspec URL of a Zarr hierarchy, any store,
        group or array of zarr-python's, any object of xarray's, or a list of these.
    fields
        Name in a sample to dataset name; all are cut by the same box. Several datasets, in a list, are the channels of
        one field. By default the only volume there is, as ``x``.
    targets
        Columns of the catalogue or, for plain files, names of one-dimensional datasets in each file.
    columns
        What an item has behind all else, one part each: columns of the catalogue (numbers, texts, and lists of numbers
        as tensors), ``sample``, which is the id, and attributes of each file's objects, as in ``Header@Redshift`` or
        ``@Redshift``. With time steps also one-dimensional datasets of each file: an item has the numbers of its steps.
    grid
        The ranks; one rank that holds whole samples by default. Three counts of blocks along (d, h, w) are looked up
        when the grid is first used, among torch.distributed's ranks or, where it is not initialised by then, the
        launcher's.
    halo
        Voxels wanted around the block: one width, or one per (d, h, w).
    boundary
        What lies outside the sample: ``zero`` or ``periodic``.
    decode
        What is done about CF attributes: ``cf`` applies scale, offset and fill values, and items are floats, ``stored``
        hands out what is stored. None means ``cf`` for what netCDF and xarray wrote, and refuses others.
    level
        Resolution of OME-Zarr images; 0, the finest, by default.
    missing
        What to do about chunks that were never written: ``error`` or ``fill``.
    axes
        Order of the axes as stored, such as ``DHWC``, for files that do not say so themselves; a mapping from field
        names where fields differ. ``N`` is an axis of samples, ``T`` one of time steps; without D, planes are volumes
        one voxel deep.
    coarser
        Fields on a coarser grid, by name: how many voxels of the others, along each axis or along (d, h, w), one of
        theirs stands for. Their blocks and halos are so much smaller. Not of patches and augmented samples.
    window
        What of a series of time steps makes a sample: an item then has a tensor ``(T, C, d, h, w)`` for each field with
        an axis T, and with a horizon further ones behind all fields, of the steps after; fields without T stay as they
        are. Without a window each time step is a sample.
    patches
        What of each sample, or of each window of a series, becomes samples; None takes all of it.
    augment
        How samples are turned, translated and cropped; None leaves them as they are.
    transform
        What is done to each item: a callable that takes the tuple and returns what the item becomes, or a mapping from
        field names to callables that each take that field's tensor ``(C, d, h, w)``.
    allow_outside
        Whether the paths that a catalogue or a file names may lead out of its folder; see `Catalog`.

    Raises
    ------
    NotFoundError
        A path, glob, dataset, target or column that is not there.
    UsageError
        Arguments that contradict each other.
    DataError
        A damaged catalogue, or targets that are not finite. Reading an item raises it for damaged volumes,
        fields of unequal shape and targets in files that are not finite.
    """

    def __init__(  # noqa: PLR0913 - the public signature: one optional word for each thing a data set may need
        self,
        source: Source,
        *,
        fields: Fields = None,
        targets: str | Sequence[str] | None = None,
        columns: str | Sequence[str] = (),
        grid: ProcessGrid | Sequence[int] | None = None,
        halo: int | Sequence[int] | Halo = 0,
        boundary: str | Boundary = Boundary.ZERO,
        missing: str | Missing = Missing.ERROR,
        decode: str | None = None,
        level: int | None = None,
        axes: Axes = None,
        coarser: Mapping[str, int | Sequence[int]] | None = None,
        window: Window | None = None,
        patches: Patches | None = None,
        augment: Augment | None = None,
        transform: ItemTransform | Mapping[str, ItemTransform] | None = None,
        allow_outside: bool = False,
    ) -> None:
        self.job = JobGrid(ProcessGrid() if grid is None else grid)
        """The ranks, or what they will be."""
        self.halo = Halo.parse(halo)
        self.boundary = Boundary.parse(boundary)
        self.target_names = (targets,) if isinstance(targets, str) else tuple(targets or ())
        self.columns = Columns((columns,) if isinstance(columns, str) else columns)
        self.missing = Missing.parse(missing)
        self._handles = Handles(self.missing)
        how = Reading(Packed.parse(decode), level)
        names = {"targets": self.target_names, "columns": self.columns.names}
        listed = list_samples(source, fields=fields, **names, axes=axes, allow_outside=allow_outside, how=how)
        self.parts = Parts(window, patches)
        """What of the stored volumes makes a sample."""
        self.samples = self.parts.of(listed, self._handles, self.columns.names)
        """Where the samples are."""
        augment = augment if patches is None else patches.augment(augment)
        self.coarse = CoarseGrids.of(coarser, self.field_names)
        """Which fields are on coarser grids."""
        if self.coarse and (patches is not None or augment is not None):
            raise UsageError("coarser", found="patches or augment besides", remedy="leave one of them out")
        self.volumes = SampleVolumes(self.coarse, self._handles, decodes=decode != "stored")
        """Their open readers, and what is known of them."""
        self.parting = parting_of(window, self.samples)
        self.augment = augment
        self.use_samples(self.samples, SampleReader(augment, self.boundary, self.field_names, handles=self._handles))
        self.item_transform = item_transform(transform, self.field_names, parts=self.part_fields)
        self.epoch = 0

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

    @property
    def part_fields(self) -> tuple[str, ...]:
        """Name of the field that each volume of an item is of; a window's target is of its input's."""
        names = self.field_names
        return names if self.parting is None else tuple(names[number] for number in self.parting.fields())

    @property
    def fingerprint(self) -> str:
        """Digest of what the indices mean; equal on all ranks that see the same data."""
        made = [repr(made) for made in (self.augment, self.parts, self.coarse or None) if made not in (None, Parts())]
        named = (*self.target_names, *self.columns.names)
        return digest_of(self.field_names, named, self.sample_ids, map(str, self.grid.spatial), made)

    def __len__(self) -> int:
        return len(self.samples.ids)

    def subset(self, indices: Indices | None = None, *, where: str | None = None) -> VolumeDataset:
        """Return some samples, in the order of `indices`, as a data set that does all that this one does.

        `where` is a condition on the columns of the catalogue, as ``voxload catalog filter`` takes them. What is drawn
        for a sample, its augmentation, stays what it is here. Open files are shared.

        Raises UsageError for indices of no sample, for none at all, and for a condition without a catalogue.
        """
        if indices is not None and where is None:
            return self.with_samples(selected(self.samples, indices))
        if where is None or indices is not None:
            raise UsageError("subset", found="both or none", expected="indices, or where=")
        return self.with_samples(selected(self.samples, chosen_by(self.samples, where)))

    def with_samples(self, samples: Samples) -> VolumeDataset:
        """Return a data set of other samples of the same fields that is otherwise as this one."""
        made = copy(self)
        made.volumes = self.volumes.renewed()
        made.use_samples(samples, SampleReader(self.augment, self.boundary, self.field_names, handles=self._handles))
        return made

    def use_samples(self, samples: Samples, cutter: SampleReader) -> None:
        """Have these samples, and what reads them, with nothing known of either; for who makes a data set."""
        self.samples, self.cutter = samples, cutter
        self._recent = RecentSamples(samples)
        self._repeats = SampleRepeats(samples, self._recent, cutter)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that `augment` draws for where no other is named; 0 at first.

        Worker processes have copies of the data set, which learn of it when the next ones are started.
        """
        if epoch < 0:
            raise UsageError("epoch", found=str(epoch), expected="0 or more")
        self.epoch = epoch

    def __getitem__(self, index: int) -> Any:
        """Return this rank's block of a sample, freshly allocated, or what `transform` makes of it."""
        volumes, targets = self._read(index)
        tensors = tuple(torch.from_numpy(volume) for volume in volumes)
        if self.volumes.are_packed:
            tensors = tuple(map(decoded, tensors, self.packing(index)))
        tensors = tensors if self.parting is None else self.parting.at(self.epoch).item(tensors)
        item: tuple[Any, ...] = (*tensors, *(() if targets is None else (targets,)), *self.row_values(index))
        return item if self.item_transform is None else self.item_transform(item)

    def _read(self, index: int) -> tuple[Sequence[Volume], torch.Tensor | None]:
        """Return a sample's blocks, freshly allocated, and its targets."""
        known = self._repeats.find(index) if self.knows((index,)) else None
        if known is not None:
            volumes = known.empty()
            if self.read_again((index,), [volume[None] for volume in volumes]) is not None:
                return volumes, None if known.targets is None else known.targets.clone()
        read = cast("ReadSample", self.read_first(index, new_blocks)[1])  # there is always room
        return read.volumes, read.targets

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
        return reads_as(type(self), VolumeDataset) and vars(self).keys().isdisjoint(READING)

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
