"""Recorder: chunks stored in order, and recorded every so many tiles with the figures of their voxels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from voxload.convert.counts import Sum
from voxload.convert.encoding import Encoded
from voxload.convert.manifest import Manifest
from voxload.convert.members import Members
from voxload.convert.writer import VolumeWriter
from voxload.statistics import Statistics


class Recorder:
    """Stores what was encoded; for one thread.

    Records end at the same tiles in every run, also in one that takes up another: sums depend on their order.

    Parameters
    ----------
    writer
        Where chunks go.
    manifest
        The volume.
    step
        Bytes of voxels between two records, at least.
    """

    def __init__(self, writer: VolumeWriter, manifest: Manifest, *, step: int) -> None:
        self._writer, self._manifest, self._step = writer, manifest, step
        self._figures = _Figures(manifest)
        self._since = 0

    def add(self, encoded: Sequence[Encoded], nbytes: int) -> None:
        """Store chunks of so many bytes of voxels."""
        self._writer.append([(one.place, one.data) for one in encoded])
        for one in encoded:
            self._figures.add(one)
        self._since += nbytes

    def end_tile(self) -> None:
        """Record what was stored if that is much: at the end of a tile, or a later run would read it again."""
        if self._since >= self._step:
            self.record()

    def record(self) -> None:
        """Record what was stored since the last time."""
        if self._since:
            self._writer.checkpoint(self._figures.ordered())
            self._figures, self._since = _Figures(self._manifest), 0


class _Figures:
    """Figures of a tile's voxels, by sample and channel; chunks must come in one order, for sums depend on it."""

    def __init__(self, manifest: Manifest) -> None:
        self._members = Members(manifest.members)
        self._chunks = manifest.chunks
        self._found: defaultdict[tuple[int, int], Sum] = defaultdict(Sum)

    def add(self, encoded: Encoded) -> None:
        """Add those of a chunk."""
        group, *place = encoded.place
        start = tuple(index * width for index, width in zip(place, self._chunks[1:], strict=True))
        number = self._members.at(start)
        for channel, counts in enumerate(encoded.channels, group * self._chunks[0]):
            self._found[number, channel].add(counts)

    def ordered(self) -> dict[int, dict[int, Statistics]]:
        """Return them by number of the sample and of the channel."""
        found: defaultdict[int, dict[int, Statistics]] = defaultdict(dict)
        for (number, channel), counted in sorted(self._found.items()):
            found[number][channel] = counted.total()
        return found
