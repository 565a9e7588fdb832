"""split: every sample in one part, no universe in two, shares as exact as whole universes allow."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.catalog.tables import lines, rows
from voxload.catalog import Grouping, Rows, universes_of
from voxload.catalog.merge import merge
from voxload.catalog.split import split
from voxload.errors import DataError, UsageError

_PARTS = ("train", "val", "test")


@st.composite
def _catalogs(draw: st.DrawFn) -> Rows:
    """Draw samples, some cut from universes, some whole, some in two rows, and one of another tool's columns."""
    universes = draw(st.lists(st.sampled_from(["", "u1", "u2", "ü3", "s0", "s1"]), min_size=3, max_size=40))
    names = [f"s{number}" for number in range(len(universes))]
    cut = dict(zip(names, universes, strict=True))
    cut |= {"s0": "", "s1": draw(st.sampled_from(["", "s0"]))}  # no circles
    twice = [name for name in names if draw(st.booleans())]
    samples = [*names, *twice]
    return rows(
        samples,
        dataset=["full"] * len(names) + ["labels"] * len(twice),
        universe=[cut[name] for name in samples],
        omega_m=[0.1 + len(name) for name in samples],
        note=[f"note of {name}" for name in samples],
    )


def _groups(catalog: Rows) -> dict[str, str]:
    """Return each sample's universe by rewriting names until nothing changes: not how the library finds it."""
    names = dict(zip(catalog.samples, catalog.strings("universe"), strict=True))
    found = {name: universe or name for name, universe in names.items()}
    for _ in range(3):
        found = {name: found.get(universe, universe) for name, universe in found.items()}
    return found


@given(
    catalog=_catalogs(), weights=st.tuples(*[st.integers(0, 20)] * 3), seed=st.integers(-5, 5), counted=st.booleans()
)
def test_a_split_parts_no_universe(catalog: Rows, weights: tuple[int, ...], seed: int, counted: bool) -> None:
    """Each sample is in one part with all its rows, universes are whole, and shares are off by one universe at most."""
    assume(sum(weights))
    groups = _groups(catalog)
    sizes = Counter(groups.values())
    wanted = [Fraction(weight, sum(weights)) * len(groups) for weight in weights]
    if counted:
        wanted = [Fraction(round(wanted[0])), Fraction(int(wanted[1])), Fraction(0)]
        wanted[2] = Fraction(len(groups)) - wanted[0] - wanted[1]
        assume(wanted[2] >= 0)
    shares = {
        name: float(share if counted else share / len(groups)) for name, share in zip(_PARTS, wanted, strict=True)
    }
    try:
        parts = split(catalog, shares, seed=seed)
    except UsageError as error:
        assert "nothing left for it" in str(error)  # noqa: PT017 - few universes cannot fill three parts
        assert min(share for share in wanted if share) <= max(sizes.values())
        return
    assert sum(map(len, parts.values())) == len(catalog)
    assert set(parts) == {name for name, share in zip(_PARTS, wanted, strict=True) if share}
    held = {name: set(part.samples) for name, part in parts.items()}
    assert sum(map(len, held.values())) == len(groups)
    assert sum(len({groups[sample] for sample in samples}) for samples in held.values()) == len(sizes)
    for name, goal in zip(_PARTS, wanted, strict=True):
        assert abs(len(held.get(name, ())) - goal) <= max(sizes.values())
    assert {name: part.table for name, part in split(catalog, shares, seed=seed).items()} == {
        name: part.table for name, part in parts.items()
    }
    assert lines(merge(list(parts.values()), Path(catalog.folder))) == lines(catalog)


@given(count=st.integers(3, 60), seed=st.integers(0, 3))
def test_samples_of_their_own_meet_shares_exactly(count: int, seed: int) -> None:
    """Where every sample is whole, numbers of samples are met to the last one."""
    catalog = rows([f"s{number}" for number in range(count)])
    parts = split(catalog, {"train": count - 2, "val": 1, "test": 1}, seed=seed)
    assert [len(part) for part in parts.values()] == [count - 2, 1, 1]


def test_the_order_is_that_of_the_hash() -> None:
    """A split that somebody published comes out again, on any machine and in any order of rows."""
    samples = [f"s{number}" for number in range(10)]
    expected = {"train": {"s0", "s2", "s3", "s4", "s5", "s6", "s7", "s9"}, "val": {"s1"}, "test": {"s8"}}
    for order in (samples, samples[::-1]):
        parts = split(rows(order), {"train": 0.8, "val": 0.1, "test": 0.1}, seed=7)
        assert {name: set(part.samples) for name, part in parts.items()} == expected
    other = split(rows(samples), {"train": 0.8, "val": 0.1, "test": 0.1}, seed=8)
    assert {name: set(part.samples) for name, part in other.items()} != expected


def test_by_sample_parts_universes() -> None:
    """With samples as groups a universe may be on both sides, and a sample's rows still are not."""
    catalog = rows(["a", "a", "b", "c", "d"], dataset=["full", "labels", "full", "full", "full"], universe=["u"] * 5)
    with pytest.raises(UsageError, match="part 'train': found nothing left for it of 1 universes"):
        split(catalog, {"train": 0.5, "test": 0.5})
    parts = split(catalog, {"train": 0.5, "test": 0.5}, by=Grouping.SAMPLE)
    held = [set(part.samples) for part in parts.values()]
    assert [len(samples) for samples in held] == [2, 2]
    assert not held[0] & held[1]


def test_a_whole_sample_is_in_the_universe_of_its_parts() -> None:
    """A universe's own volume, a crop of it and a crop of that crop are one universe."""
    catalog = rows(["whole", "crop", "inner", "other"], universe=["", "whole", "crop", "other"])
    assert universes_of(catalog) == {"whole": "whole", "crop": "whole", "inner": "whole", "other": "other"}


def test_ambiguous_universes_are_refused() -> None:
    """Rows of a sample that disagree, and samples cut from each other, name the sample."""
    with pytest.raises(DataError, match="sample 'a' in the catalogue: found universes 'u' and ''"):
        universes_of(rows(["a", "a"], dataset=["x", "y"], universe=["u", ""]))
    with pytest.raises(DataError, match="universe of sample 'a' in the catalogue: found a circle, 'a' of 'b' of 'a'"):
        universes_of(rows(["a", "b"], universe=["b", "a"]))


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ({"train": 0.8, "test": 0.1}, r"train 0\.8, test 0\.1, together 0\.9, expected fractions that add up to 1, or"),
        ({"train": 3, "test": 2}, "together 5, expected .* numbers that add up to the 4 samples"),
        ({"train": 2.5, "test": 1.5}, "together 4"),
        ({"train": 2, "test": -1}, "expected no negative number"),
        ({"train": float("nan"), "test": 1}, "train nan"),
        ({"train": float("inf"), "test": 1}, "train inf"),
        ({"train": 0.99, "test": 0.01}, "part 'test': found nothing left for it of 4 universes"),
        ({}, "together 0"),
    ],
)
def test_wrong_shares_are_refused(shares: dict[str, float], words: str) -> None:
    """Shares that do not add up, and parts that would be empty, say what was asked for."""
    with pytest.raises(UsageError, match=words):
        split(rows(["a", "b", "c", "d"], Path()), shares)


def test_thirds_add_up() -> None:
    """Three thirds in float64 are one, although they are not."""
    parts = split(rows(["a", "b", "c"]), dict.fromkeys(_PARTS, 1 / 3))
    assert [len(part) for part in parts.values()] == [1, 1, 1]
