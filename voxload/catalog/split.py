"""Split: samples dealt out to training, validation and test, with all samples of a universe on one side."""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from fractions import Fraction
from itertools import accumulate, pairwise

from voxload.catalog.rows import Rows
from voxload.errors import DataError, UsageError


def universes_of(rows: Rows) -> dict[str, str]:
    """Return the universe of each sample: what it was cut from in the end; its own id where it is whole.

    A whole sample of which another one was cut is in that one's universe.

    Raises DataError when the rows of a sample name different universes, or two samples were cut from each other.
    """
    parents = _parents(rows)
    found: dict[str, str] = {}
    for sample in parents:
        seen = [sample]
        while parents.get(seen[-1], "") not in ("", seen[-1]):
            parent = parents[seen[-1]]
            if parent in seen:
                raise DataError(
                    f"universe of sample {sample!r} in {rows.name or 'the catalogue'}",
                    found=f"a circle, {' of '.join(map(repr, [*seen, parent]))}",
                    expected="a whole at its end",
                )
            seen.append(parent)
        found[sample] = seen[-1]
    return found


def _parents(rows: Rows) -> dict[str, str]:
    """Return what the column says of each sample."""
    found: dict[str, str] = {}
    for sample, universe in zip(rows.samples, rows.strings("universe"), strict=True):
        if found.setdefault(sample, universe) != universe:
            raise DataError(
                f"sample {sample!r} in {rows.name or 'the catalogue'}",
                found=f"universes {found[sample]!r} and {universe!r}",
                expected="one in all rows of the sample",
            )
    return found


_ROUNDING = Fraction(1, 10**9)
"""How far fractions may be from one: three thirds in float64 are not."""


class Grouping(StrEnum):
    """What is never parted by a split."""

    UNIVERSE = "universe"
    """All samples that were cut from one universe."""
    SAMPLE = "sample"
    """The rows of a sample; samples of one universe may land on different sides."""


def split(
    rows: Rows, shares: Mapping[str, float], *, seed: int = 0, by: Grouping = Grouping.UNIVERSE
) -> dict[str, Rows]:
    """Deal samples out to named parts; a part with a share of 0 is left out.

    Universes are put in the order of a hash of their id with `seed`, and cut where the parts' numbers of samples come
    closest to their shares: each part is off by one universe at most. The same catalogue and seed give the same parts
    on any machine. With samples added the cuts move, and some universes change sides.

    Parameters
    ----------
    rows
        What is split.
    shares
        Part name to its share: fractions of one, or numbers of samples.
    seed
        Another seed gives another order.
    by
        What is never parted.

    Raises
    ------
    UsageError
        When shares add up to neither one nor the number of samples, or a part would be empty.
    DataError
        When a sample's universe is ambiguous, see `universes_of`.
    """
    groups = _groups(rows, by)
    sizes = Counter(groups.values())
    order = sorted(sizes, key=lambda group: (_place(group, seed), group))
    wanted = {name: share for name, share in _wanted(shares, len(groups)).items() if share}
    cuts = _cuts([sizes[group] for group in order], list(wanted.values()))
    side = {group: name for name, (a, b) in zip(wanted, pairwise(cuts), strict=True) for group in order[a:b]}
    for name in wanted:
        if name not in side.values():
            raise UsageError(
                f"part {name!r}",
                found=f"nothing left for it of {len(order)} {'universes' if by is Grouping.UNIVERSE else 'samples'}",
                expected="one at least",
                remedy="give it a larger share, or leave it out",
            )
    sides = [side[groups[sample]] for sample in rows.samples]
    return {name: rows.keep([found == name for found in sides]) for name in wanted}


def _groups(rows: Rows, by: Grouping) -> dict[str, str]:
    """Return the group of each sample."""
    return universes_of(rows) if by is Grouping.UNIVERSE else {sample: sample for sample in rows.samples}


def _place(group: str, seed: int) -> bytes:
    """Return where a group stands in the order of its seed. Source of the hash: RFC 7693."""
    return hashlib.blake2b(group.encode(), key=str(seed).encode(), digest_size=16).digest()


def _wanted(shares: Mapping[str, float], total: int) -> dict[str, Fraction]:
    """Return how many samples each part should have."""
    said = ", ".join(f"{name} {share:.12g}" for name, share in shares.items())
    if any(share < 0 or not math.isfinite(share) for share in shares.values()):
        raise UsageError("shares", found=said, expected="no negative number")
    exact = {name: Fraction(str(share)) for name, share in shares.items()}
    whole = sum(exact.values(), Fraction())
    if abs(whole - 1) <= _ROUNDING:
        return {name: share * total for name, share in exact.items()}
    if whole != total or any(share.denominator != 1 for share in exact.values()):
        raise UsageError(
            "shares",
            found=f"{said}, together {float(whole):.12g}",
            expected=f"fractions that add up to 1, or numbers that add up to the {total} samples",
        )
    return exact


def _cuts(sizes: Sequence[int], wanted: Sequence[Fraction]) -> list[int]:
    """Return between which groups to cut, the two ends included: where the samples before come closest."""
    before = [0, *accumulate(sizes)]
    cuts = [0]
    for goal in list(accumulate(wanted))[:-1]:
        place = min(bisect_left(before, goal), len(sizes))
        is_lower_closer = place > 0 and goal - before[place - 1] <= before[place] - goal
        cuts.append(place - 1 if is_lower_closer else place)
    return [*cuts, len(sizes)]
