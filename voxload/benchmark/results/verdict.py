"""Verdict: which loader is the fastest, by how much, and whether that is sure; of results that compare like with like.

Results that do not are ranked apart, and what differs is told: what was delivered, to whom, or how warm the page cache
was. One that delivered wrong blocks is not ranked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from voxload.benchmark.measure.document import Document
from voxload.benchmark.results.alike import UNKNOWN_CACHE, conditions, is_wrong, told, unequal
from voxload.benchmark.results.compare import Change, Verdict, change
from voxload.benchmark.results.measures import THROUGHPUT, middle, number

SPEED = THROUGHPUT[0]
"""What is ranked: samples of all ranks in a second."""
_LISTED = 6
"""Differences that are named."""

Named = tuple[str, Document]
"""A result under its name."""


@dataclass(frozen=True, slots=True)
class Place:
    """One result in a ranking."""

    name: str
    loader: str
    speed: float
    """Median samples per second."""
    lead: Change | None
    """How many times as fast the first one is; None for the first itself."""

    @property
    def is_beaten(self) -> bool:
        """Whether the first one is surely faster."""
        return self.lead is not None and self.lead.verdict is Verdict.BETTER

    @property
    def known_as(self) -> str:
        """Its loader, with its own name where that says more."""
        return self.loader if self.name == self.loader else f"{self.loader} ({self.name})"

    def sureness(self) -> str:
        """Return whether the first one is surely faster, in words; empty of the first itself."""
        if self.lead is None:
            return ""
        found = self.lead.interval
        span = "" if found is None else f"{number(found.low)} to {number(found.high)} times"
        if self.lead.verdict is Verdict.BETTER and found is not None:
            return f"sure: {span}, confidence {found.coverage:.0%}"
        if self.lead.verdict is Verdict.FEW and found is not None:
            return f"not sure: {span}, but so few runs give a confidence of {found.coverage:.0%} only"
        if self.lead.verdict is Verdict.SINGLE:
            return "not sure: a single run has no interval"
        return f"not sure: {span}, which has room for no difference" if span else "not sure: no throughput is known"


@dataclass(frozen=True, slots=True)
class Ranking:
    """Results that compare like with like, the fastest first."""

    about: str
    """What tells them from other rankings; empty where there is one."""
    places: tuple[Place, ...]
    notes: tuple[str, ...]
    """What differs besides loaders, and what nobody looked at."""

    @property
    def is_sure(self) -> bool:
        """Whether the first one is surely faster than each other one."""
        return all(place.is_beaten for place in self.places[1:])

    def headline(self) -> str:
        """Return who is the fastest, by how much, and whether that is sure."""
        first, second = self.places[:2]
        about = f"At {self.about}: " if self.about else ""
        ratio = "-" if second.lead is None else number(second.lead.ratio)
        speeds = f"{number(first.speed)} against {number(second.speed)} samples per second"
        if self.is_sure:
            return (
                f"{about}{first.known_as} is the fastest, {ratio} times as fast as the next, {second.known_as}: "
                f"{speeds}. That is sure."
            )
        rivals = ", ".join(place.known_as for place in self.places[1:] if not place.is_beaten)
        return (
            f"{about}No loader is surely the fastest. {first.known_as} has the highest median, {ratio} times that of "
            f"{second.known_as}: {speeds}. That may be chance; as fast may be {rivals}."
        )


@dataclass(frozen=True, slots=True)
class Judgement:
    """What results say of each other."""

    rankings: tuple[Ranking, ...]
    apart: tuple[str, ...]
    """Why a result is in no ranking, or in another one, a sentence each."""

    def headlines(self) -> tuple[str, ...]:
        """Return a line for each ranking; one where there is none."""
        if self.rankings:
            return tuple(ranking.headline() for ranking in self.rankings)
        return ("Nothing is ranked: no two results compare like with like.",)


def judge(results: Sequence[Named]) -> Judgement:
    """Return the verdict on results, each under a name of its own."""
    apart = [f"{name} delivered wrong blocks, and is not ranked." for name, found in results if is_wrong(found)]
    right = [(name, found) for name, found in results if not is_wrong(found)]
    groups: dict[tuple[tuple[str, str], ...], list[Named]] = {}
    for name, found in right:
        groups.setdefault(tuple(sorted(conditions(found).items())), []).append((name, found))
    ranked = [group for group in groups.values() if len(group) > 1]
    differing = _differing([group[0][1] for group in ranked])
    rankings = tuple(_ranking(group, differing) for group in ranked)
    home = max(groups.values(), key=len)[0] if groups else None
    if home is not None:
        lonely = [group[0] for group in groups.values() if len(group) == 1 and group[0] is not home]
        apart += [_why(one, home) for one in lonely]
    return Judgement(rankings, tuple(apart))


def _ranking(group: Sequence[Named], differing: Sequence[str]) -> Ranking:
    ordered = sorted(group, key=lambda one: -_speed(one[1]))
    first = ordered[0][1]
    places = []
    for number_, (name, found) in enumerate(ordered):
        lead = change(SPEED, SPEED.known(found), SPEED.known(first)) if number_ else None
        places.append(Place(name, found.workload.supply.loader, _speed(found), lead))
    about = ", ".join(f"{name} {conditions(first)[name]}" for name in differing)
    return Ranking(about, tuple(places), tuple(_notes([found for _, found in ordered])))


def _notes(documents: Sequence[Document]) -> list[str]:
    """Return what a reader of a ranking has to know."""
    found = []
    names = dict.fromkeys(name for other in documents[1:] for name in unequal(told(documents[0]), told(other)))
    if names:
        more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
        found.append(f"They differ in {', '.join(list(names)[:_LISTED])}{more} as well.")
    if UNKNOWN_CACHE in conditions(documents[0])["page cache"]:
        found.append("Nobody looked at the page cache: one of them may have been measured cold and another one warm.")
    return found


def _why(one: Named, home: Named) -> str:
    """Return what tells a result from those that it is not ranked with."""
    mine, theirs = conditions(one[1]), conditions(home[1])
    names = unequal(mine, theirs)
    parts = [f"{name} {mine.get(name, 'unknown')} instead of {theirs.get(name, 'unknown')}" for name in names[:_LISTED]]
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{one[0]} is not ranked with {home[0]}: {'; '.join(parts)}{more}."


def _differing(documents: Sequence[Document]) -> list[str]:
    """Return the names of the conditions that tell groups apart: the few that say most."""
    if len(documents) < 2:
        return []
    found = [conditions(document) for document in documents]
    names = dict.fromkeys(name for other in found[1:] for name in unequal(found[0], other))
    # What was delivered follows from who asked for it.
    rest = [name for name in names if name != "delivered"] or list(names)
    return rest[:3]


def _speed(document: Document) -> float:
    known = SPEED.known(document)
    return middle(known) if known else -1.0
