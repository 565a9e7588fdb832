"""LRU: every group keeps what it used last, and knows of no other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from voxload.prefetch.held import Held
from voxload.prefetch.line import DISK, MEMORY, EpochOrder, Line
from voxload.prefetch.placement import Placement
from voxload.prefetch.policies.draft import Access, Draft, start
from voxload.prefetch.policies.protocol import State


@dataclass(frozen=True, slots=True)
class Lru:
    """A node-local cache that evicts what was used least recently; what a page cache or a caching file system does.

    A block stays in the tier that it was stored in. A new one takes free room, in memory first, or replaces the least
    recently used ones of the tier that has the very least recently used one.
    """

    name: str = "lru"

    def begin(self, line: Line, held: Held) -> State:
        """Return the state before the first epoch."""
        return start(line, held)

    def place(self, state: State, epoch: EpochOrder, ahead: Sequence[EpochOrder]) -> tuple[Placement, State]:
        """Plan one epoch; what is ahead makes no difference."""
        del ahead
        draft = Draft(state, epoch)
        for access in draft.accesses():
            copies = draft.copies[access.group]
            if access.sample in copies:
                draft.take(access, access.group)
                copies[access.sample] = copies.pop(access.sample)
                continue
            tier = draft.fits(access.group, access.sample)
            if tier < 0:
                tier = _evict(draft, access)
            if tier >= 0:
                draft.store(access, tier)
        return draft.finish(state.chosen)


def _evict(draft: Draft, access: Access) -> int:
    """Make room for an access's block and return the tier, or -1 where what is not in use does not suffice."""
    copies = draft.copies[access.group]
    oldest = next(iter(copies.values())).tier if copies else MEMORY
    for tier in (oldest, DISK if oldest == MEMORY else MEMORY):
        lacking, victims = draft.size(access.sample) - draft.left(access.group, tier), []
        for sample, copy in copies.items():
            if copy.tier == tier and copy.free <= access.step:
                victims.append(sample)
                lacking -= draft.size(sample)
                if lacking <= 0:
                    break
            elif copy.free > access.step:  # and so are all behind it
                break
        if lacking <= 0:
            for sample in victims:
                draft.drop(access.group, sample, access.step)
            return tier
    return -1
