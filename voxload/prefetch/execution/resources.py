"""Resources: what a plan is carried out with, and what comes of a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from voxload.cache.protocol import BlockKey, Peers, Tier
from voxload.prefetch.cost import CostModel
from voxload.prefetch.events import SourceKind
from voxload.prefetch.meter import Meter
from voxload.readers.protocol import ReadCost, Volume


@dataclass(frozen=True, slots=True)
class StorageRead:
    """What came of reading a sample's blocks from the storage."""

    cost: ReadCost
    """What it took."""
    is_sure: bool
    """Whether they are what their keys say: else they were written to meanwhile, and nobody keeps them."""


class Blocks(Protocol):
    """One rank's blocks of every sample; all methods may be called from many threads at once."""

    def keys(self, sample: int) -> tuple[BlockKey, ...]:
        """Return the key of each field's block."""
        ...

    def lasts(self, sample: int) -> bool:
        """Tell whether the keys stay true beyond the job: only then may its blocks be kept where the next job looks."""
        ...

    def read(self, sample: int, out: Sequence[Volume]) -> StorageRead:
        """Fill one array for each field from the storage."""
        ...

    def targets(self, sample: int) -> Any:
        """Return what comes with a sample besides its blocks."""
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


@dataclass(frozen=True, slots=True)
class Arrival:
    """How one block of a batch came."""

    kind: SourceKind
    """From where."""
    cost: ReadCost
    """What it took of the storage."""
    targets: Any
    """What comes with the sample."""
    is_sure: bool = True
    """As in `StorageRead`; what comes from a tier or a peer is."""


@dataclass(frozen=True, slots=True)
class FilledSlot:
    """A step's slot, filled."""

    arrays: list[Volume]
    """One for each field, batch first."""
    arrivals: dict[int, Arrival]
    """By place in the batch."""


@dataclass(frozen=True, slots=True)
class Filling:
    """A slot that is being filled."""

    arrays: list[Volume]
    arrivals: dict[int, Arrival]

    def at(self, place: int) -> list[Volume]:
        """Return one block's array for each field."""
        return [array[place] for array in self.arrays]
