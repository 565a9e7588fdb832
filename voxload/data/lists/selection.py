"""SelectedSamples: some samples of a list, or of several lists, as a list of their own."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from voxload.catalog.query.conditions import Condition
from voxload.catalog.query.parser import parse
from voxload.data.lists.names import Names
from voxload.data.lists.samples import Sample, Samples
from voxload.errors import UsageError

Indices = Sequence[int] | npt.NDArray[Any]
"""Of samples, negative ones from the end; or an array of booleans, one a sample."""


class SelectedSamples:
    """Samples of other lists, in any order; see Samples.

    Ids are the samples' own; where two lists share one, the number of the list stands in front.

    Parameters
    ----------
    sources
        The lists, of the same fields.
    which
        For each sample the number of its list, and its index there, ``(samples, 2)``.
    """

    def __init__(self, sources: Sequence[Samples], which: npt.NDArray[np.int64]) -> None:
        self.fields, self.targets_in_file = sources[0].fields, sources[0].targets_in_file
        self._sources, self._which = tuple(sources), which
        many = len(sources) > 1
        self._is_numbered = many and len(set(chain.from_iterable(s.ids for s in sources))) < sum(
            len(source.ids) for source in sources
        )
        self.ids: Sequence[str] = Names(len(which), self._id)

    def sample(self, index: int) -> Sample:
        """Return one sample."""
        source, own = self._place(index)
        return self._sources[source].sample(own)

    def _place(self, index: int) -> tuple[int, int]:
        source, own = self._which[index].tolist()
        return int(source), int(own)

    def number(self, index: int) -> int:
        """Return the sample's index in the list that it comes from at first."""
        source, own = self._place(index)
        return number_of(self._sources[source], own)

    def stored_key(self, index: int) -> Hashable:
        """See the function."""
        source, own = self._place(index)
        return source, stored_key(self._sources[source], own)

    def where(self, condition: Condition) -> list[int]:
        """Return the indices of the samples for which a condition holds; see `CatalogSamples.where`."""
        chosen = [set(chosen_of(source, condition)) for source in self._sources]
        return [index for index, (source, own) in enumerate(self._which.tolist()) if own in chosen[source]]

    def _id(self, index: int) -> str:
        source, own = self._place(index)
        name = self._sources[source].ids[own]
        return f"{source}/{name}" if self._is_numbered else name


def number_of(samples: Samples, index: int) -> int:
    """Return the index that what is drawn for a sample follows from: its own, wherever it was chosen from."""
    return samples.number(index) if isinstance(samples, SelectedSamples) else index


def stored_key(samples: Samples, index: int) -> Hashable:
    """Return what tells the stored sample, of which a patch at a place that is drawn is a part, or the sample itself.

    Of indices outside of the list, None.
    """
    if not 0 <= index < len(samples.ids):
        return None
    if isinstance(samples, SelectedSamples):
        return samples.stored_key(index)
    drawn_from = getattr(samples, "drawn_from", None)
    found: Hashable = index if drawn_from is None else drawn_from(index)
    return found


def selected(samples: Samples, indices: Indices) -> SelectedSamples:
    """Return the samples of some indices, in their order; raises UsageError for others than indices of samples."""
    count = len(samples.ids)
    given = np.asarray(list(indices) if not isinstance(indices, np.ndarray) else indices)
    if given.dtype == bool and given.shape == (count,):
        given = np.flatnonzero(given)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise UsageError("subset", found=f"{given.dtype} {given.shape}", expected="indices of samples, or a condition")
    own = given.astype(np.int64)
    wrong = own[(own < -count) | (own >= count)]
    if len(wrong):
        raise UsageError("subset", found=f"index {wrong[0]}", expected=f"indices of {count} samples")
    if not len(own):
        raise UsageError("subset", found="no sample", expected="one or more")
    return SelectedSamples([samples], np.stack([np.zeros_like(own), own % count], axis=1))


def chosen_by(samples: Samples, where: str) -> list[int]:
    """Return the indices of the samples for which a condition holds; raises UsageError for what is none."""
    return chosen_of(samples, parse(where))


def chosen_of(samples: Samples, condition: Condition) -> list[int]:
    """Return the indices of the samples for which a condition holds, on the catalogue's row of their first field.

    Raises UsageError where there is no catalogue, or one without a column of the condition.
    """
    look = getattr(samples, "where", None)
    if look is None:
        raise UsageError(
            "where",
            found="samples of no catalogue, or of several lists",
            expected="a catalogue, whose columns the condition is about",
            remedy="choose by indices, or let voxload convert write a catalogue",
        )
    found: list[int] = look(condition)
    return found


def joined(lists: Sequence[Samples]) -> SelectedSamples:
    """Return the samples of several lists, one behind the other."""
    parts = [
        np.stack([np.full(len(one.ids), number), np.arange(len(one.ids))], axis=1) for number, one in enumerate(lists)
    ]
    return SelectedSamples(lists, np.concatenate(parts).astype(np.int64))
