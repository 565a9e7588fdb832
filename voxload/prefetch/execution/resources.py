"""Resources: what a plan is carried out with, and what comes of a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from voxload.cache.protocol import BlockKey, Peers, Tier
from voxload.prefetch.cost import CostModel
from voxload.prefetch.events import Part, SourceKind
from voxload.prefetch.meter import Meter
from voxload.readers.protocol import ReadCost, Volume


@dataclass(frozen=True, slots=True)
class StorageRead:
    """What came of reading a sample's blocks from the storage."""

    cost: ReadCost
    """What it took."""
    is_sure: bool
    """Whether they are what their keys say: else they were written to meanwhile, and nobody keeps them."""
    source: SourceKind = SourceKind.STORAGE
    """Where they came from, where that is asked in its place."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """How one block of a batch came."""

    kind: SourceKind
    """From where."""
    cost: ReadCost
    """What it took of the storage."""
    is_sure: bool = True
    """As in `StorageRead`; what comes from a tier or a peer is."""


class Filling(Protocol):
    """The slot of a step while it is filled; its methods may be called from many threads, but for `begin`."""

    arrivals: dict[int, Arrival]
    """How each block of the step came, by its place in the plan's row."""

    def begin(self, step: int) -> None:
        """Learn which step it is, before anything of it is brought; nothing happens when that is known."""
        ...

    def at(self, part: Part) -> Sequence[Volume]:
        """Return the arrays that a block of the step is brought to, one a field; each time the same."""
        ...

    def arrived(self, part: Part, arrival: Arrival) -> None:
        """Take note that a block is in its arrays; the same one may arrive again."""
        ...

    def whole(self, part: Part) -> Sequence[Volume] | None:
        """Return the arrays of a block that arrived; None where only what is wanted of it did."""
        ...

    def take_from(self, part: Part, tier: Tier, keys: Sequence[BlockKey]) -> bool:
        """Take a block out of a tier's own memory, as far as it is wanted; False where it has to be brought to `at`.

        So has one that is to be stored afterwards.
        """
        ...

    def read_wanted(self, part: Part) -> ReadCost | None:
        """Read from the storage what is wanted of a block that cannot be read whole; None where that is all of it.

        Raises what reading that raises.
        """
        ...

    def again(self) -> Filling:
        """Return the same slot for another step, where this one is given up."""
        ...


class Blocks(Protocol):
    """One rank's blocks, and how batches are made of them; methods may be called from many threads at once."""

    def keys(self, number: int, /) -> tuple[BlockKey, ...]:
        """Return the keys of a block, one for each of its fields."""
        ...

    def lasts(self, number: int, /) -> bool:
        """Tell whether the keys stay true beyond the job: only then may its blocks be kept where the next job looks."""
        ...

    def nbytes(self, number: int, /) -> int:
        """Return the bytes of a block."""
        ...

    def read(self, number: int, out: Sequence[Volume], /) -> StorageRead:
        """Fill one array for each field from the storage."""
        ...

    def filling(self, arrays: list[Volume], /) -> Filling:
        """Return what fills a slot; for one thread."""
        ...


class Slot(Protocol):
    """A staging slot."""

    def arrays(self) -> list[Volume]:
        """Return an array for each field, batch first, which lend the slot out until the last of them is gone."""
        ...


class Slots(Protocol):
    """Staging slots; used by the driver's thread only."""

    def acquire(self) -> Slot | None:
        """Return a free slot, or None."""
        ...

    def replace(self) -> Slot:
        """Return a new slot in place of one that its consumer keeps."""
        ...


@dataclass(frozen=True, slots=True)
class NearSources:
    """What lies nearer than the storage."""

    tiers: Mapping[int, Tier]
    """This rank's own, by the plan's names of them."""
    peers: Peers | None = None
    """Those of the other groups; None where nothing leads there."""
    stored: Callable[[], None] = lambda: None
    """Called after each store, for peers may wait for the block."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What instructions are carried out with."""

    blocks: Blocks
    """What is read."""
    near: NearSources
    """Tiers and peers; whoever made them closes them, after the executor."""
    costs: CostModel
    """The planner's: what it predicts is compared with what happens."""
    meter: Meter
    """Counts what comes from where."""
    readers: int
    """Threads for the storage."""
    helpers: int
    """Threads for everything nearer."""
