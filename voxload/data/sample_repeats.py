"""SampleRepeats: how a data set reads samples again that it read before, see KnownSamples.

A sample as it is stored is read again as it was. One that is cut out of a stored one, at a place that is drawn, is read
as any other that was cut out of the same, save for where it begins.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Hashable, Sequence

from voxload.augment import Draw
from voxload.data.known_samples import KnownSample, KnownSamples, MovedSample, ReadSample
from voxload.data.lists.samples import RecentSamples, Samples
from voxload.data.lists.selection import number_of, stored_key
from voxload.data.open_sample import OpenSample
from voxload.data.sample_reader import SampleReader
from voxload.errors import VoxloadError
from voxload.geometry import Boundary, Halo
from voxload.readers.protocol import Volume

Form = tuple[Halo, Boundary]
"""What blocks are told apart by that are cut otherwise."""


class SampleRepeats:
    """Reads samples again by one call of the core; safe to use from many threads.

    Parameters
    ----------
    samples, recent, cutter
        The data set's.
    """

    def __init__(self, samples: Samples, recent: RecentSamples, cutter: SampleReader) -> None:
        self._samples, self._recent, self._cutter = samples, recent, cutter
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
            self._recent.at(index),
            number_of(self._samples, index),
            epoch=epoch,
            repeat=repeat,
            spatial=known.crop.spatial,
        )
        return known.moved(placement, cost)

    def learn(self, index: int, read: ReadSample, opened: OpenSample, form: Form) -> None:
        """Learn how a sample, still open, is read that was just read; see `VolumeDataset.read_first`."""
        if isinstance(index, Draw) or not self._cutter.repeats:
            return
        place = operator.index(index) % len(self._samples.ids)
        key = self._keys((place,))[0]
        if not self.known.may_learn(key):
            return
        path = opened.sample.locations[0].path
        if read.targets is not None and opened.sample.targets is None and not os.path.isfile(path):  # noqa: PTH113
            return  # a file's stamp does not tell of the targets that lie beside it
        try:
            sample = opened.made(read)
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

    def _keys(self, indices: Sequence[int]) -> Sequence[Hashable]:
        """Return what samples are known by."""
        return [stored_key(self._samples, index) for index in indices] if self._cutter.cuts else indices
