"""SampleRepeats: how a data set reads samples again that it read before, see KnownSamples.

A sample as it is stored is read again as it was. One that is cut out of a stored one, at a place that is drawn, is read
as any other that was cut out of the same, save for where it begins.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Hashable, Sequence

from voxload.augment import Draw
from voxload.data.known_samples import KnownSample, KnownSamples, MovedSample, ReadSample
from voxload.data.lists.samples import Samples, sample_at
from voxload.data.lists.selection import number_of, stored_key
from voxload.data.sample_reader import SampleReader
from voxload.data.sample_volumes import SampleVolumes
from voxload.errors import VoxloadError
from voxload.geometry import Boundary, Box, Halo
from voxload.readers.protocol import Volume

Form = tuple[Halo, Boundary]
"""What blocks are told apart by that are cut otherwise."""


BlocksOf = Callable[[tuple[int, int, int]], Sequence[Box]]
"""Gives a rank's block of each field of a sample of some extents."""


class SampleRepeats:
    """Reads samples again by one call of the core; safe to use from many threads.

    Parameters
    ----------
    samples, volumes, cutter
        The data set's.
    """

    def __init__(self, samples: Samples, volumes: SampleVolumes, cutter: SampleReader) -> None:
        self._samples, self._volumes, self._cutter = samples, volumes, cutter
        self.known = KnownSamples()
        """What was learnt."""
        self._form: Form | None = None

    def knows(self, indices: Sequence[int], form: Form) -> bool:
        """Tell whether samples, or what they are cut out of, were all read before; not of what is no index."""
        are_indices = all(type(index) is int for index in indices)
        return are_indices and self._form == form and self.known.has_all(self._keys(indices))

    def find(self, index: int) -> KnownSample | None:
        """Return what is known of a sample, or of another one that is cut out of the same."""
        return self.known.find(self._keys((index,))[0])

    def read(
        self, indices: Sequence[int], arrays: Sequence[Volume], *, epoch: int, repeats: Sequence[int]
    ) -> list[KnownSample] | None:
        """See `VolumeDataset.read_again`."""
        keys = self._keys(indices)
        if not self._cutter.cuts:
            return self.known.read(keys, arrays)
        moved: list[MovedSample] = []
        for key, index, repeat in zip(keys, indices, repeats, strict=True):
            known = self.known.find(key)
            try:
                found = None if known is None else self._moved(known, index, epoch, repeat)
            except (VoxloadError, OSError):  # whose words the careful way finds
                found = None
            if found is None:
                return None
            moved.append(found)
        return self.known.read_moved(keys, arrays, moved)

    def _moved(self, known: KnownSample, index: int, epoch: int, repeat: int) -> MovedSample | None:
        """Return what is known of a sample that was cut as it is cut now."""
        if known.crop is None:
            return None
        placement, cost = self._cutter.place(
            sample_at(self._samples, index),
            number_of(self._samples, index),
            epoch=epoch,
            repeat=repeat,
            spatial=known.crop.spatial,
        )
        return known.moved(placement, cost)

    def learn(self, index: int, read: ReadSample, boxes: BlocksOf, form: Form) -> None:
        """See `VolumeDataset.learn`."""
        if isinstance(index, Draw) or not self._cutter.repeats:
            return
        place = operator.index(index) % len(self._samples.ids)
        key = self._keys((place,))[0]
        if not self.known.may_learn(key):
            return
        try:
            sample = self._made(place, read, boxes)
        except (VoxloadError, OSError):  # it has gone since it was read, or is another one: who reads it next is told
            return
        if sample is None:
            if self._cutter.cuts:
                self.known.refuse(key)
            return
        if self._form != form:
            self.known.clear()
            self._form = form
        self.known.learn(key, sample)

    def _made(self, index: int, read: ReadSample, boxes: BlocksOf) -> KnownSample | None:
        """See `SampleReader.made`; None also where a file's stamp does not tell of the targets that lie beside it."""
        sample = sample_at(self._samples, index)
        path = sample.locations[0].path
        if read.targets is not None and sample.targets is None and not os.path.isfile(path):  # noqa: PTH113
            return None
        with self._volumes.opened(sample) as readers:
            spatial = self._volumes.measured(index, sample, readers)
            number = number_of(self._samples, index)
            placement, _ = self._cutter.place(sample, number, epoch=read.epoch, repeat=read.repeat, spatial=spatial)
            blocks = boxes(placement.extents)
            made = self._cutter.made(placement, blocks, read.volumes, readers=readers)
        if made is None:
            return None
        forms = tuple([(volume.shape, volume.strides, volume.dtype) for volume in read.volumes])
        known = KnownSample(forms, tuple(made[0]), made[1], read.cost, read.targets)
        return known.cut(placement, blocks, spatial) if self._cutter.cuts else known

    def _keys(self, indices: Sequence[int]) -> Sequence[Hashable]:
        """Return what samples are known by."""
        return [stored_key(self._samples, index) for index in indices] if self._cutter.cuts else indices
