"""Messages between a loader and its helper process, over a pair of sockets that nobody else has.

They are pickled: both ends are one user's, one program's, and one's child; no port is opened, and no path leads there.
"""

from __future__ import annotations

import pickle
import traceback
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from voxload.data.dataset import VolumeDataset
from voxload.errors import InternalError, VoxloadError
from voxload.loader.reading.batch_read import BatchPlan
from voxload.loader.reading.staging import BatchLayout
from voxload.readers.protocol import ReadCost
from voxload.readers.settings import ReaderSettings


@dataclass(frozen=True, slots=True)
class Team:
    """What the helper is, said first."""

    dataset: VolumeDataset
    """Where samples are read from."""
    layout: BatchLayout
    """Of a slot."""
    threads: int
    """How many read."""
    settings: ReaderSettings
    """How they do."""


@dataclass(frozen=True, slots=True)
class SlotMade:
    """A slot, whose file follows."""

    number: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class SlotsGone:
    """Slots that are no more."""

    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Read:
    """Read a batch into a slot."""

    number: int
    """No other batch's."""
    slot: int
    plan: BatchPlan


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Read no more of a batch."""

    number: int


Order = SlotMade | SlotsGone | Read | Cancelled
"""What the helper is told."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The helper takes orders."""


@dataclass(frozen=True, slots=True)
class Made:
    """A batch is in its slot."""

    number: int
    targets: npt.NDArray[np.float32] | None
    cost: ReadCost


@dataclass(frozen=True, slots=True)
class Broken:
    """A batch was not read."""

    number: int
    error: bytes
    """What was raised, pickled."""


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """A batch is not read, and nothing writes to its slot: it was cancelled, or does not fit there."""

    number: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The helper cannot begin."""

    why: str


Answer = Ready | Made | Broken | LeftAlone | Refused
"""What the helper says."""


def error_bytes(error: BaseException) -> bytes:
    """Return an error as the other process can have it; one that cannot be pickled by what it says."""
    if not isinstance(error, VoxloadError):
        lines = traceback.format_exception(error)
        error.add_note("raised in the reader process:\n" + "".join(lines).rstrip())
    try:
        found = pickle.dumps(error)
        pickle.loads(found)  # noqa: S301 - its own
    except Exception:  # noqa: BLE001 - whatever an error's own methods raise
        return pickle.dumps(InternalError(f"{type(error).__name__} in the reader process", found=str(error)))
    return found
