"""SampleVolumes: the open readers of a sample's fields, and what is known of its volumes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from voxload.data.coarse_grids import CoarseGrids
from voxload.data.decoding import Packings
from voxload.data.layout import FieldLayout
from voxload.data.lists.reading import check_told
from voxload.data.lists.samples import Sample
from voxload.data.lists.shapes import spatial_of
from voxload.geometry import Boundary, Box
from voxload.readers.generation import Generation, block_generation
from voxload.readers.handles import Handles
from voxload.readers.protocol import Location, Reader, VolumeInfo

_PATCHED = 1024
"""Samples with patches whose volumes are remembered: to open a file once more for each patch takes as long as to read
one, where it is small."""


class SampleVolumes:
    """Opens the volumes of samples and describes them; safe to use from many threads.

    Parameters
    ----------
    coarse
        Names of the fields, and which of them are on coarser grids.
    handles
        Open readers.
    decodes
        Whether numbers that stand for others by CF attributes are worked out.
    """

    def __init__(self, coarse: CoarseGrids, handles: Handles, *, decodes: bool) -> None:
        self._coarse, self._handles = coarse, handles
        self.decodes = decodes
        self.are_packed = False
        """Whether a sample is known whose numbers stand for others, and are worked out."""
        self._packings: dict[int, tuple[Packings, ...]] = {}
        self._of_patched: dict[tuple[Location, ...], list[VolumeInfo]] = {}

    def renewed(self) -> SampleVolumes:
        """Return one for other samples, which knows nothing of these."""
        return SampleVolumes(self._coarse, self._handles, decodes=self.decodes)

    @contextmanager
    def opened(self, sample: Sample) -> Iterator[list[Reader]]:
        """Give the open readers of a sample's fields to a block."""
        with ExitStack() as stack:
            yield [stack.enter_context(self._handles.lease(location)) for location in sample.locations]

    def extents(self, location: Location) -> tuple[int, int, int]:
        """Return the extents (D, H, W) of a volume; opens it where they are not known."""
        return spatial_of(location, self._handles)

    def describe(self, index: int, sample: Sample) -> list[VolumeInfo]:
        """Return what is known of each field's volume; opens the sample's files, and refuses as `described` does.

        Of a sample that has many patches, what was found when its files were opened last.
        """
        known = self._of_patched.get(sample.locations) if sample.whole is not None else None
        if known is not None:
            return known
        with self.opened(sample) as readers:
            return self.described(index, sample, readers)

    def described(self, index: int, sample: Sample, readers: Sequence[Reader]) -> list[VolumeInfo]:
        """Return what open readers know; raises DataError at fields whose spatial shapes do not fit each other."""
        found = [reader.describe() for reader in readers]
        self._coarse.check(sample.id, [info.spatial for info in found])
        for info, location in zip(found, sample.locations, strict=True):
            check_told(info, location)
        if sample.whole is not None:
            if len(self._of_patched) >= _PATCHED:
                self._of_patched.clear()
            self._of_patched[sample.locations] = found
        if self.decodes and any(info.packing for info in found):
            self._packings[index] = tuple(info.packing for info in found)
            self.are_packed = True
        return found

    def finest(self, infos: Sequence[VolumeInfo]) -> tuple[int, int, int]:
        """Return the extents (D, H, W) of a sample from what is known of its fields' volumes."""
        return self._coarse.finest(infos[0].spatial)

    def layouts(self, infos: Sequence[VolumeInfo], boxes: Sequence[Box]) -> tuple[FieldLayout, ...]:
        """Return shape and type of each field's part in its box."""
        return tuple(
            FieldLayout((info.shape[0], *box.shape), info.native_dtype, is_packed=self.decodes and bool(info.packing))
            for info, box in zip(infos, boxes, strict=True)
        )

    def generations(
        self, sample: Sample, boxes: Callable[[tuple[int, ...]], Sequence[Box]], boundary: Boundary
    ) -> tuple[Generation | None, ...]:
        """Return the generation of each field's box of a sample; `boxes` gives these from its extents."""
        with self.opened(sample) as readers:
            wanted = boxes(self._coarse.finest(readers[0].describe().spatial))
            parts = zip(readers, wanted, strict=True)
            return tuple(block_generation(reader, box, boundary=boundary) for reader, box in parts)

    def packing(self, index: int, sample: Sample) -> tuple[Packings, ...]:
        """Return what the stored numbers of each field stand for; opens the sample's files where it is not known."""
        known = self._packings.get(index)
        return tuple(info.packing for info in self.describe(index, sample)) if known is None else known
