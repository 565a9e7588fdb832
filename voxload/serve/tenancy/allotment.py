"""Allotment: how much of a node's memory, and of its reads, each tenant may use; pure.

Memory goes to tenants that have jobs first, in equal parts, but to none more than its quota: what one may not have goes
to the others (max-min fairness). What these leave, tenants without jobs may keep, in the same way, but no more than
they have. Reads of the storage go to tenants with jobs by their shares; everyone has one at least.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Quota:
    """What a user may have."""

    memory: int
    """Bytes."""
    share: float = 1.0
    """Of the reads, beside the shares of the others."""


@dataclass(frozen=True, slots=True)
class Need:
    """A tenant, as far as this is concerned."""

    user: int
    is_active: bool
    """Whether it has jobs."""
    has: int
    """Bytes that it may use now."""


@dataclass(frozen=True, slots=True)
class Allotted:
    """What a tenant may use from now on."""

    memory: int
    """Bytes."""
    reads: int
    """Of the storage at once."""


@dataclass(frozen=True, slots=True)
class Quotas:
    """The quotas of all users."""

    default: Quota
    of: Mapping[int, Quota] = field(default_factory=dict)
    """Of those that have another one."""

    def find(self, user: int) -> Quota:
        """Return a user's."""
        return self.of.get(user, self.default)


def allotted(tenants: Sequence[Need], *, memory: int, reads: int, quotas: Quotas) -> list[Allotted]:
    """Return what each tenant may use of so many bytes and of so many reads at once.

    The bytes of all of them together are never more than `memory`. Tenants of one user, which have other groups, share
    the user's quota.
    """
    caps = _caps(tenants, quotas)
    found = [0] * len(tenants)
    for is_active in (True, False):
        chosen = [place for place, one in enumerate(tenants) if one.is_active is is_active]
        most = [caps[place] if is_active else min(caps[place], tenants[place].has) for place in chosen]
        for place, nbytes in zip(chosen, _levelled(most, memory - sum(found)), strict=True):
            found[place] = nbytes
    weights = [quotas.find(one.user).share if one.is_active else 0.0 for one in tenants]
    whole = sum(weights)
    return [
        Allotted(nbytes, max(1, int(reads * weight / whole)) if whole else 1)
        for nbytes, weight in zip(found, weights, strict=True)
    ]


def _caps(tenants: Sequence[Need], quotas: Quotas) -> list[int]:
    """Return the most that each tenant may have: its part of its user's quota."""
    caps = [0] * len(tenants)
    for user in {one.user for one in tenants}:
        whole = quotas.find(user).memory
        for is_active in (True, False):
            mine = [place for place, one in enumerate(tenants) if one.user == user and one.is_active is is_active]
            for count, place in enumerate(mine):
                caps[place] = whole // (len(mine) - count)
                whole -= caps[place]
            if is_active and mine:
                whole = 0
    return caps


def _levelled(most: Sequence[int], room: int) -> list[int]:
    """Return parts of a room, none beyond its most, and else as equal as can be."""
    found, left = [0] * len(most), room
    order = sorted(range(len(most)), key=most.__getitem__)
    for count, place in enumerate(order):
        found[place] = max(0, min(most[place], left // (len(order) - count)))
        left -= found[place]
    return found
