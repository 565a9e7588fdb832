"""Batches as arrays: cut, packed and put together into the order of an epoch; pure."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np

from voxload.errors import UsageError
from voxload.prefetch.line import EpochOrder, Ints


@dataclass(frozen=True, slots=True)
class Batching:
    """How a run of indices is cut into batches, as torch's BatchSampler does."""

    batch: int
    """Samples in a batch."""
    drop_last: bool
    """Whether a shorter last batch is left out."""

    def of(self, indices: Ints) -> Ints:
        """Return ``(rows, n)`` indices as ``(rows, steps, batch)``, -1 behind the end of a shorter last batch."""
        rows, count = indices.shape
        steps = count // self.batch if self.drop_last else -(-count // self.batch)
        padded = np.full((rows, steps * self.batch), -1, np.int64)
        used = min(count, padded.shape[1])
        padded[:, :used] = indices[:, :used]
        return padded.reshape(rows, steps, self.batch)


def flatten(indices: Iterable[int], samples: int) -> Ints:
    """Return indices as an array of 0 to ``samples - 1``; negative ones count from the end, as in Python.

    Raises
    ------
    UsageError
        When one is no integer, or not in the data set.
    """
    try:
        flat = np.fromiter(map(operator.index, indices), np.int64)
    except TypeError as error:
        raise UsageError("sampler", found=str(error), expected="sample indices, as integers") from error
    wrong = (flat < -samples) | (flat >= samples)
    if wrong.any():
        raise UsageError(
            "sampler",
            found=f"sample {flat[wrong][0]} of a data set of {samples}",
            expected=f"indices below {samples}",
            remedy="make the sampler for this data set",
        )
    flat[flat < 0] += samples
    return flat


def pack(batches: Sequence[Sequence[int]], samples: int) -> Ints:
    """Return one group's batches as ``(steps, longest batch)``, -1 behind the end of shorter ones.

    Raises
    ------
    UsageError
        When an index is none of a data set of that many samples.
    """
    lengths = np.fromiter(map(len, batches), np.int64, len(batches))
    packed = np.full((len(batches), int(lengths.max(initial=0))), -1, np.int64)
    packed[np.arange(packed.shape[1]) < lengths[:, None]] = flatten(chain.from_iterable(batches), samples)
    return packed


def assemble(epoch: int, groups: Sequence[Ints]) -> EpochOrder:
    """Return an epoch's order from the packed batches of each group, group 0 first, as ranks exchange them.

    Groups may differ in steps and in their longest batch: -1 stands where one has less than another.

    Raises
    ------
    UsageError
        When there is no group.
    """
    if not groups:
        raise UsageError("epoch order", found="no group", expected="the batches of one or more")
    steps, batch = (max(group.shape[axis] for group in groups) for axis in (0, 1))
    order = np.full((len(groups), steps, batch), -1, np.int64)
    for place, group in zip(order, groups, strict=True):
        place[: group.shape[0], : group.shape[1]] = group
    return EpochOrder(epoch, order)


def materialise(batches: Iterable[Sequence[int]], most: int) -> tuple[list[tuple[int, ...]], Iterator[Sequence[int]]]:
    """Draw an epoch from a sampler that cannot be replayed, as far as `most` batches: it may have no end.

    Returns
    -------
    list of tuple of int
        The batches drawn, for `OrderSource.observe`.
    Iterator
        The whole epoch: those batches, then what is left. What the sampler raises is raised at its place in it.
    """
    left = iter(batches)
    drawn: list[tuple[int, ...]] = []
    try:
        for batch in islice(left, most):
            drawn.append(tuple(batch))  # noqa: PERF401 - what is drawn before an error is kept
    except Exception as error:  # noqa: BLE001 - raised when its turn comes
        return drawn, chain(drawn, _raise(error))
    return drawn, chain(drawn, left)


def is_beginning(batches: Ints, whole: Ints) -> bool:
    """Return whether packed batches are the first of others, however wide either is padded."""
    if len(batches) > len(whole):
        return False
    common = min(batches.shape[1], whole.shape[1])
    begun = whole[: len(batches)]
    return bool(
        np.array_equal(batches[:, :common], begun[:, :common])
        and (batches[:, common:] == -1).all()
        and (begun[:, common:] == -1).all()
    )


def _raise(error: Exception) -> Iterator[Sequence[int]]:
    raise error
    yield ()
