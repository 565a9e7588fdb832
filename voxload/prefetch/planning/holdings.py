"""Holdings: what this rank's own tiers hold, what is being stored there, and what is yet to be."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from voxload.errors import UsageError
from voxload.prefetch.events import Drop, Store
from voxload.prefetch.line import DISK, MEMORY, Line
from voxload.prefetch.planning.access import Access, Phase

TIERS = (MEMORY, DISK)


class Holdings:
    """Bytes and blocks of one rank's memory and disk, as its planner counts them.

    Stores of a tier are issued in the order of need, so that none takes the room of one that is needed earlier. What is
    under way counts as stored.
    """

    def __init__(self, line: Line, group: int, held: Mapping[int, int]) -> None:
        room = line.rooms[group]
        self._sizes = line.sizes
        self.rooms = {MEMORY: room.memory, DISK: room.disk}
        self.used = dict.fromkeys(TIERS, 0)
        self.held: dict[int, int] = {}
        self.storing: dict[int, Access] = {}
        self._since: dict[int, int] = {}  # step that a held block was stored for
        self._due = {tier: deque[Access]() for tier in TIERS}
        self._promises: dict[int, list[Access]] = {}
        for sample, tier in held.items():
            self.held[sample] = tier
            self.used[tier] += self.size(sample)
        for tier in TIERS:
            if self.used[tier] > self.rooms[tier]:
                raise UsageError(
                    "blocks held",
                    found=f"{self.used[tier]} bytes in tier {tier}",
                    expected=f"{self.rooms[tier]} or fewer",
                    remedy="drop what does not fit before you plan",
                )

    def size(self, sample: int) -> int:
        """Return the bytes of a block."""
        return int(self._sizes[sample])

    def promise(self, access: Access) -> None:
        """Note whether a block is to be stored; called in the order of need."""
        access.is_kept = access.keep not in TIERS
        if not access.is_kept:
            access.step.to_keep += 1
            self._due[access.keep].append(access)
            self._promises.setdefault(access.sample, []).append(access)

    def is_promised(self, access: Access) -> bool:
        """Tell whether a block is to be stored before an access needs it."""
        return any(earlier.key < access.key for earlier in self._promises.get(access.sample, ()))

    def settle(self, access: Access) -> bool:
        """Note that nothing is left to be stored of an access, whatever came of it; False where nothing was."""
        if access.is_kept:
            return False
        access.is_kept = True
        access.step.to_keep -= 1
        promises = self._promises[access.sample]
        promises.remove(access)
        if not promises:
            del self._promises[access.sample]
        return True

    def stores(self, clock: int) -> Iterator[tuple[Access, Store | None]]:
        """Give the stores that can begin after a step was delivered, and None for what is not to be stored after all.

        The latter is there already, or has no room although its turn has come; the plan was not followed then.
        """
        for tier, due in self._due.items():
            while due:
                access = due[0]
                if access.is_kept:
                    due.popleft()
                    continue
                is_turn = clock >= access.step.number - 1
                fits = self.used[tier] + self.size(access.sample) <= self.rooms[tier]
                is_held = access.sample in self.held
                # What is held now may be dropped before its turn: only then is it known to be there already.
                if (
                    access.phase is not Phase.THERE
                    or access.sample in self.storing
                    or not (is_turn or (fits and not is_held))
                ):
                    break
                due.popleft()
                if is_held or not fits:
                    yield access, None
                    continue
                self.used[tier] += self.size(access.sample)
                self.storing[access.sample] = access
                yield access, Store(part=access.part, tier=tier)

    def stored(self, sample: int, *, is_kept: bool) -> tuple[Access, Drop | None]:
        """Note that a store ended; what was stored for a step that was cut no plan knows: it is dropped at once."""
        access = self.storing.pop(sample)
        if is_kept and not access.step.is_cut:
            self.held[sample] = access.keep
            self._since[sample] = access.step.number
            return access, None
        self.used[access.keep] -= self.size(sample)
        return access, Drop(sample) if is_kept else None

    def drop(self, sample: int, step: int) -> Drop | None:
        """Forget a block that was stored for an earlier step; None where the tiers have not got it."""
        return None if self._since.get(sample, step - 1) >= step else self.lose(sample)

    def lose(self, sample: int) -> Drop | None:
        """Forget a block, whenever it was stored; None where the tiers have not got it."""
        tier = self.held.pop(sample, None)
        if tier is None:
            return None
        self._since.pop(sample, None)
        self.used[tier] -= self.size(sample)
        return Drop(sample)
