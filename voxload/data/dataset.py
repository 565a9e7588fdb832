"""VolumeDataset: samples, a grid and a halo become this rank's blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, cast

import torch
from torch.utils.data import Dataset

from voxload.augment import Augment
from voxload.catalog.query.parser import parse
from voxload.data.coarse_grids import CoarseGrids
from voxload.data.columns import Columns
from voxload.data.decoding import decoded
from voxload.data.item_transforms import ItemTransform, item_transform
from voxload.data.known_samples import ReadSample
from voxload.data.layout import new_blocks
from voxload.data.lists.following import Following
from voxload.data.lists.listing import Listing, Parts
from voxload.data.lists.names import digest_of
from voxload.data.lists.outline import Form, Outline
from voxload.data.lists.patches import Patches
from voxload.data.lists.reading import Reading
from voxload.data.lists.samples import Axes, Fields, Samples
from voxload.data.lists.selection import Indices, chosen_by, selected
from voxload.data.lists.sources import Source
from voxload.data.lists.window import Window
from voxload.data.parting import parting_of
from voxload.data.sample_blocks import SampleBlocks
from voxload.data.sample_reader import SampleReader
from voxload.data.sample_volumes import SampleVolumes
from voxload.display.description import Described, Description
from voxload.display.grid_picture import Cuts
from voxload.display.table import cut
from voxload.errors import UsageError, VoxloadError
from voxload.geometry import Boundary, Box, Halo
from voxload.grid import ProcessGrid
from voxload.launch.jobgrid import JobGrid
from voxload.readers.handles import Handles
from voxload.readers.protocol import Missing, Volume


class VolumeDataset(Described, SampleBlocks, Dataset[tuple[torch.Tensor, ...]]):
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
    follow
        Whether samples that others append to the catalogue are taken up, as `refresh` does it, by a DataLoader when an
        epoch begins. Samples are in the order of their generations then, not of their ids.

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
        follow: bool = False,
    ) -> None:
        self.job = JobGrid(ProcessGrid() if grid is None else grid)
        """The ranks, or what they will be."""
        self.halo = Halo.parse(halo)
        self.boundary = Boundary.parse(boundary)
        self.target_names = (targets,) if isinstance(targets, str) else tuple(targets or ())
        self.columns = Columns((columns,) if isinstance(columns, str) else columns)
        self.missing = Missing.parse(missing)
        self._handles = Handles(self.missing)
        self.parts = Parts(window, patches)
        """What of the stored volumes makes a sample."""
        how, names = Reading.parse(decode, level), (self.target_names, self.columns.names)
        listing = Listing(fields, *names, axes, allow_outside, how, self.parts, self._handles)
        self.following = Following.of(source, listing) if follow else None
        """Which generation of a catalogue that grows this has; None where it follows none."""
        self.samples = listing.of(source) if self.following is None else self.following.samples
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

    @property
    def generation(self) -> int | None:
        """Generation of the catalogue that the samples are of; None of a data set that does not follow one."""
        return None if self.following is None else self.following.generation

    def refresh(self, generation: int | None = None) -> int:
        """Take up what was appended to a catalogue that is followed, or go to a generation of it; return which it is.

        Indices stay what they are, and new samples come behind them. A voxload.DataLoader does this when an epoch
        begins, the same on all ranks; for other loaders call it between epochs.

        Raises UsageError where no catalogue is followed, or it has not come to the generation; DataError where it was
        written anew; and what reading it raises. The data set is then as it was.
        """
        if self.following is None:
            raise UsageError("refresh", found="a data set that follows no catalogue", remedy="say follow=True")
        found = self.following.at(self.following.newest() if generation is None else generation)
        if found is not self.following:
            samples = found.samples
            if len(samples.ids) < len(self):
                self.volumes = self.volumes.renewed()  # what is known of samples that go, others may take the places of
            self.use_samples(samples, self.cutter)
            self.following = found
        return found.generation

    def subset(self, indices: Indices | None = None, *, where: str | None = None) -> VolumeDataset:
        """Return some samples, in the order of `indices`, as a data set that does all that this one does.

        `where` is a condition on the columns of the catalogue, as ``voxload catalog filter`` takes them. What is drawn
        for a sample, its augmentation, stays what it is here. Open files are shared. Of a catalogue that is followed,
        so is the subset.

        Raises UsageError for indices of no sample, for none at all, for a condition without a catalogue, and for
        indices of a data set that follows one.
        """
        if (indices is None) == (where is None):
            raise UsageError("subset", found="both or none", expected="indices, or where=")
        if self.following is not None:
            return self._narrowed(where)
        chosen = chosen_by(self.samples, where) if where is not None else cast("Indices", indices)
        return self.with_samples(selected(self.samples, chosen))

    def _narrowed(self, where: str | None) -> VolumeDataset:
        """Return those samples of a catalogue that is followed for which a condition holds."""
        if self.following is None or where is None:
            raise UsageError(
                "subset",
                found="indices of a data set that follows its catalogue",
                expected="a condition, which says of new samples, too, whether they are in it",
                remedy="say where=, or leave follow out",
            )
        return self.with_following(self.following.narrowed(parse(where)))

    def with_following(self, following: Following) -> VolumeDataset:
        """Return a data set of another choice of a catalogue that is followed, and that is otherwise as this one."""
        made = self.with_samples(following.samples)
        made.following = following
        return made

    def with_samples(self, samples: Samples) -> VolumeDataset:
        """Return a data set of other samples of the same fields that is otherwise as this one."""
        made = copy(self)
        made.following = None
        made.volumes = self.volumes.renewed()
        made.use_samples(samples, SampleReader(self.augment, self.boundary, self.field_names, handles=self._handles))
        return made

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

    def description(self) -> Description:
        """Return what is known without opening a file or looking up ranks, which would settle them too early."""
        first = self._sample(0)
        forms = tuple(Form.of(location, self._handles) for location in first.locations)
        cuts, boxes = self._cuts(forms[0])
        followed = "" if self.following is None else f"generation {self.following.generation}"
        made = {"window": self.parts.window, "patches": self.parts.patches, "augment": self.augment}
        halo = self.halo.low if self.halo.low == self.halo.high else (self.halo.low, self.halo.high)
        options = {
            "halo": (str(halo[0]) if len(set(halo)) == 1 else str(halo)) if self.halo else "",
            "boundary": str(self.boundary),
            **{name: "" if each is None else cut(repr(each)) for name, each in made.items()},
            "transform": "" if self.item_transform is None else type(self.item_transform).__name__,
            "follows": followed,
        }
        outline = Outline(
            ids=self.sample_ids,
            fields=self.field_names,
            first=first,
            forms=forms,
            spatial=self.job.spatial,
            grid=self.grid if self.is_grid_known else None,
            cuts=cuts,
            boxes=boxes,
            targets=self.target_names,
            columns=self.columns.names,
            options=options,
        )
        return outline.description(type(self).__name__)

    def _described(self) -> Description:
        return self.description()

    def _cuts(self, first: Form | None) -> tuple[Cuts | None, tuple[Box, ...]]:
        """Return how a sample is cut, and this rank's boxes of its fields; nothing where that is not known."""
        if first is None or not self.is_grid_known:
            return None, ()
        try:
            spatial = self.cutter.extents(self.coarse.finest(first.spatial))
            return Cuts(self.grid.bounds(spatial), self.grid.block(spatial), self.box(spatial)), self.boxes(spatial)
        except VoxloadError:  # reading a sample will say why ranks cannot have blocks of it
            return None, ()
