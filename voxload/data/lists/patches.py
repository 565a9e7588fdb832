"""Patches: boxes of one size that are cut out of large samples, as samples of their own.

Patches at random places are crops that are drawn anew each epoch: `Augment` with a `RandomCrop`, whose draws follow
from the seed, the epoch and the patch's index. Patches at fixed places are windows of what is stored, and are read,
kept and known again as any stored sample is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod
from operator import sub
from typing import Any

import numpy as np

from voxload.augment import Augment, ClassCentres, RandomCrop
from voxload.catalog.query.conditions import Condition
from voxload.data.lists.names import Names
from voxload.data.lists.samples import Sample, Samples
from voxload.data.lists.selection import chosen_of
from voxload.data.lists.shapes import of_each, spatial_of
from voxload.errors import DataError, UsageError
from voxload.readers.handles import Handles
from voxload.readers.protocol import Location, Window

Extents = tuple[int, int, int]


@dataclass(frozen=True, slots=True, init=False)
class Patches:
    """What of each sample becomes samples: boxes of one size, at random places, on a grid, or where the user says.

    One of `per_sample`, `stride`, `overlap` and `starts` is given. An epoch is as long as there are patches.
    """

    shape: Extents
    """Extents (D, H, W) of a patch; one int stands for three."""
    per_sample: int | None
    """Patches of each sample at places that are drawn anew each epoch."""
    centres: ClassCentres | None
    """Around which voxels random patches lie; None makes every place inside the sample as likely."""
    stride: Extents | None
    """Voxels from the begin of a patch to that of the next; the last one along an axis ends with the sample."""
    starts: Mapping[str, tuple[Extents, ...]] | None
    """First voxels (d, h, w) of patches by the sample's id; samples that are not named have none."""
    pad: bool
    """What a sample smaller than a random patch becomes; see `RandomCrop`."""
    seed: int
    """What random places follow from, where there is no augmentation, whose own seed counts."""

    def __init__(  # noqa: PLR0913 - one optional word for each thing that places may need
        self,
        shape: int | Sequence[int],
        *,
        per_sample: int | None = None,
        centres: ClassCentres | None = None,
        stride: int | Sequence[int] | None = None,
        overlap: int | Sequence[int] | None = None,
        starts: Mapping[str, Any] | None = None,
        pad: bool = False,
        seed: int = 0,
    ) -> None:
        size = RandomCrop(shape).size
        ways = {"per_sample": per_sample, "stride": stride, "overlap": overlap, "starts": starts}
        named = [name for name, value in ways.items() if value is not None]
        if len(named) != 1:
            raise UsageError(
                "Patches", found=" and ".join(named) or "no way to choose places", expected=f"one of {[*ways]}"
            )
        if per_sample is not None and (not _is_whole(per_sample) or per_sample < 1):
            raise UsageError("per_sample of Patches", found=repr(per_sample), expected="a whole number of 1 or more")
        if per_sample is None and (centres is not None or pad):
            raise UsageError("Patches", found=f"centres or pad with {named[0]}", expected="them with per_sample")
        step = RandomCrop(stride).size if stride is not None else None
        if overlap is not None:
            both = (overlap,) * 3 if isinstance(overlap, int) else tuple(overlap)
            step = RandomCrop([extent - shared for extent, shared in zip(size, both, strict=True)]).size
        given = {
            "shape": size,
            "per_sample": per_sample,
            "centres": centres,
            "stride": step,
            "starts": None if starts is None else {name: _corners(name, places) for name, places in starts.items()},
            "pad": pad,
            "seed": seed,
        }
        for name, value in given.items():
            object.__setattr__(self, name, value)

    def augment(self, given: Augment | None) -> Augment | None:
        """Return the augmentation of a data set whose own is `given`; raises UsageError where that crops, too."""
        if self.per_sample is None:
            return given
        parts = () if given is None else given.parts
        if any(isinstance(part, RandomCrop) for part in parts):
            raise UsageError(
                "augment", found="a RandomCrop beside patches", expected="one way to cut", remedy="leave one out"
            )
        crop = RandomCrop(self.shape, centres=self.centres, pad=self.pad)
        return Augment(*parts, crop, seed=given.seed if given else self.seed, vectors=given.vectors if given else None)

    @property
    def overlaps(self) -> bool:
        """Whether patches of a grid have voxels in common, beside those at the end of a sample."""
        return self.stride is not None and any(step < size for step, size in zip(self.stride, self.shape, strict=True))

    def along(self, extents: Sequence[int]) -> tuple[list[int], ...]:
        """Return the first voxels along (d, h, w) of the patches on a sample's grid, of which each triple is one; pure.

        Raises UsageError when the sample is smaller than a patch.

        Examples
        --------
        >>> Patches(4, stride=3).along((4, 4, 9))
        ([0], [0], [0, 3, 5])
        """
        if any(extent < size for extent, size in zip(extents, self.shape, strict=True)):
            raise UsageError(
                "Patches",
                found=f"a sample of {tuple(extents)}",
                expected=f"{self.shape} or more",
                remedy="choose smaller patches, or per_sample=1 with pad=True",
            )
        lasts = [extent - size for extent, size in zip(extents, self.shape, strict=True)]
        return tuple([*range(0, last, step), last] for last, step in zip(lasts, self.stride or self.shape, strict=True))


def _is_whole(given: Any) -> bool:
    """Tell whether what a caller gave is a whole number."""
    return isinstance(given, int) and not isinstance(given, bool)


def _corners(name: str, places: Any) -> tuple[Extents, ...]:
    """Return first voxels as three whole numbers each."""
    found = np.asarray(places)
    if found.ndim != 2 or found.shape[1] != 3 or found.dtype.kind not in "iu":
        raise UsageError(
            f"starts[{name!r}] of Patches", found=f"{found.dtype} {found.shape}", expected="whole numbers (patches, 3)"
        )
    return tuple((int(d), int(h), int(w)) for d, h, w in found)


class PatchSamples:
    """The patches of a list of samples, those of one sample behind each other; see Samples.

    Parameters
    ----------
    stored
        The samples.
    counts
        Patches of each.
    starts
        Gives the first voxel of a sample's patch; None where it is drawn.
    shape
        Extents of a patch.

    Raises UsageError when there is no patch.
    """

    def __init__(
        self, stored: Samples, counts: Sequence[int], *, starts: Callable[[int, int], Extents] | None, shape: Extents
    ) -> None:
        self.fields, self.targets_in_file = stored.fields, stored.targets_in_file
        self._stored, self._starts, self._shape = stored, starts, shape
        self._ends = list(accumulate(counts))
        self._last: tuple[int, Sample] = -1, Sample("", (), None)
        if not self._ends or not self._ends[-1]:
            raise UsageError("Patches", found="none in any sample", expected="one or more")
        self.ids: Sequence[str] = _PatchNames(stored.ids, self._ends, self._id)

    def place(self, index: int) -> tuple[int, int]:
        """Return the sample that a patch is of, and its number there."""
        number = bisect_right(self._ends, index)
        return number, index - (self._ends[number - 1] if number else 0)

    def drawn_from(self, index: int) -> int | tuple[int, int]:
        """Return the sample that a patch is drawn from; of one whose place is fixed, that with the patch's number."""
        number, patch = self.place(index)
        return number if self._starts is None else (number, patch)

    def sample(self, index: int) -> Sample:
        """Return one patch: its sample's volumes, or where it lies in them."""
        number, patch = self.place(index)
        last = self._last  # one object, for many threads
        if last[0] != number:
            last = self._last = number, self._stored.sample(number)
        stored = last[1]
        locations = stored.locations
        if self._starts is not None:
            start = self._starts(number, patch)
            locations = tuple(_window(location, start, self._shape) for location in locations)
        return replace(stored, id=self._id(index), locations=locations, whole=number)

    def where(self, condition: Condition) -> list[int]:
        """Return the indices of the patches of samples for which a condition holds; see `CatalogSamples.where`."""
        chosen = set(chosen_of(self._stored, condition))
        return [index for index in range(self._ends[-1]) if self.place(index)[0] in chosen]

    def _id(self, index: int) -> str:
        number, patch = self.place(index)
        return f"{self._stored.ids[number]}[p{patch}]"


class _PatchNames(Names):
    """Names of patches, which in their order are made several times as fast as one by one: all are digested."""

    def __init__(self, stored: Sequence[str], ends: Sequence[int], name: Callable[[int], str]) -> None:
        super().__init__(ends[-1], name)
        self._stored, self._ends = stored, ends

    def __iter__(self) -> Iterator[str]:
        for name, count in zip(self._stored, map(sub, self._ends, [0, *self._ends]), strict=True):
            yield from (f"{name}[p{patch}]" for patch in range(count))


class _Starts:
    """First voxels of patches at fixed places."""

    def __init__(self, patches: Patches, extents: Sequence[Extents], ids: Sequence[str]) -> None:
        self._patches, self._extents, self._ids = patches, tuple(extents), ids
        self._along: dict[Extents, tuple[list[int], ...]] = {}  # of each shape that samples have

    def count(self, number: int) -> int:
        """Return how many patches a sample has."""
        if self._patches.starts is not None:
            return len(self._patches.starts.get(self._ids[number], ()))
        return prod(map(len, self._grid(number)))

    def __call__(self, number: int, patch: int) -> Extents:
        """Return the first voxel of a sample's patch."""
        if self._patches.starts is not None:
            return self._patches.starts[self._ids[number]][patch]
        along = self._grid(number)
        rows, columns = len(along[1]), len(along[2])
        return along[0][patch // columns // rows], along[1][patch // columns % rows], along[2][patch % columns]

    def _grid(self, number: int) -> tuple[list[int], ...]:
        extents = self._extents[number]
        if extents not in self._along:
            self._along[extents] = self._patches.along(extents)
        return self._along[extents]


def patches_of(stored: Samples, patches: Patches, handles: Handles) -> PatchSamples:
    """Return the patches of a list of samples; opens files where a grid's samples are of unknown shape.

    Raises UsageError when a sample is smaller than a patch, or places are given for a sample that is not there.
    """
    count = len(stored.ids)
    if patches.per_sample is not None:
        return PatchSamples(stored, [patches.per_sample] * count, starts=None, shape=patches.shape)
    extents: list[Extents] = []
    if patches.starts is None:
        extents = of_each(stored, lambda sample: spatial_of(sample.locations[0], handles))
    else:
        unknown = set(patches.starts) - set(stored.ids)
        if unknown:
            expected = f"ids of samples, such as {stored.ids[0]!r}"
            raise UsageError("starts of Patches", found=f"{min(unknown)!r}", expected=expected)
    starts = _Starts(patches, extents, stored.ids)
    return PatchSamples(stored, [starts.count(n) for n in range(count)], starts=starts, shape=patches.shape)


def _window(location: Location, start: Extents, shape: Extents) -> Location:
    """Return the part of a volume, or of its window, that is a patch."""
    whole = location.window
    if whole is not None:
        if any(lo < 0 or lo + size > extent for lo, size, extent in zip(start, shape, whole.shape, strict=True)):
            expected = f"inside the sample's {whole.shape}"
            raise DataError(f"{location}", found=f"a patch of {shape} at {start}", expected=expected)
        d, h, w = (lo + first for lo, first in zip(start, whole.start, strict=True))
        start = d, h, w
    return replace(location, window=Window(start, shape))
