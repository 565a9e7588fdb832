"""LoaderState: where a loader is in its epochs, as a small value to go on from with any grid and batch size.

The unit is the order of samples, never data: what was read ahead and not delivered is behind the position, and is read
again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any

from voxload.data.dataset import VolumeDataset
from voxload.data.lists.listing import Parts
from voxload.data.lists.names import in_lots
from voxload.errors import UsageError
from voxload.loader.order.orders import SEQUENTIAL, Identity

FORMAT = 1
"""Number of this form of a state."""
UNKNOWN = "unknown"
"""Kind of a sampler that has to be drawn to be known."""
_NEEDS_NO_START = (SEQUENTIAL, "list")


@dataclass(frozen=True, slots=True)
class OrderToken:
    """What gives the order of an epoch again."""

    sampler: str
    """Class of what draws it, for people."""
    kind: str
    """As in Identity, or UNKNOWN."""
    seed: int | None = None
    """As in Identity."""
    of: str = ""
    """As in Identity."""
    epoch: int | None = None
    """The sampler's own number of the epoch, where it has one."""
    start: Mapping[str, Any] | None = None
    """A mark of the generator, right before the epoch is drawn, or, where it has not begun, now."""
    is_begun: bool = False
    """Whether an iterator was made, which draws a seed as it is made."""
    is_own: bool = False
    """Whether the start is one of the caller's generator."""
    is_numbered: bool = False
    """Whether epochs are seeded by their numbers."""
    drawn: str = ""
    """Digest of the batches delivered, of a sampler that is not known."""
    snapshot: Mapping[str, Any] | None = None
    """States of samplers that give one, behind the last batch delivered."""
    is_over: bool = False
    """Whether the snapshot stands at the end of an epoch that was left by it."""
    is_spent: bool = False
    """Whether the sampler had come to its end, and says where the next epoch begins."""
    shuffles: Sequence[int] = ()
    """The numbers that seed epochs, where these are reordered: a permutation of the first epochs' numbers."""

    @property
    def identity(self) -> Identity:
        """What must be equal in the loader that goes on."""
        return Identity(self.kind, self.seed, self.of)

    @property
    def is_order(self) -> bool:
        """Whether the order of the epoch follows from this alone."""
        return self.is_begun and (self.start is not None or self.kind in _NEEDS_NO_START)


@dataclass(frozen=True, slots=True)
class LoaderState:
    """A place in the epochs of a loader."""

    data: str
    """Digest of the samples, fields and targets; no matter how they are cut into blocks."""
    samples: int | None
    """Length of the data set; None where it has none."""
    epoch: int
    """Number of the epoch."""
    position: int
    """Samples of the epoch's order that all groups together have consumed; of an unknown sampler, batches."""
    order: OrderToken
    generation: int | None = None
    """That of the catalogue which the data set follows; None where it follows none."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as ints, strings and mappings of them."""
        order = {
            each.name: getattr(self.order, each.name)
            for each in fields(OrderToken)
            if each.default is MISSING or getattr(self.order, each.name) != each.default
        }
        own = {name: value for name, value in asdict(self).items() if name != "generation" or value is not None}
        return {"version": FORMAT, **own, "order": order}

    @classmethod
    def from_dict(cls, state: Any) -> LoaderState:
        """Return what `to_dict` made a mapping of.

        Raises
        ------
        UsageError
            When it is of another format, or none.
        """
        if not isinstance(state, Mapping) or state.get("version") != FORMAT:
            found = state.get("version") if isinstance(state, Mapping) else type(state).__name__
            raise UsageError(
                "format of the loader's state",
                found=str(found),
                expected=str(FORMAT),
                remedy="load what state_dict of a voxload.DataLoader returned, with the version that made it",
            )
        try:
            whole = {name: value for name, value in state.items() if name not in ("version", "order")}
            made = cls(**whole, order=OrderToken(**state["order"]))
        except (KeyError, TypeError) as error:
            raise UsageError("loader's state", found=str(error), expected="what state_dict returned") from error
        if not all(isinstance(number, int) for number in (made.epoch, made.position)) or made.position < 0:
            raise UsageError("loader's state", found=f"position {made.position} of epoch {made.epoch}")
        if made.generation is not None and not isinstance(made.generation, int):
            raise UsageError("loader's state", found=f"generation {made.generation!r}", expected="a number")
        if not is_permutation(made.order.shuffles):
            raise UsageError(
                "loader's state", found=f"shuffles {made.order.shuffles!r}", expected="each number of an epoch once"
            )
        return made


def is_permutation(shuffles: Any) -> bool:
    """Tell whether a value has each of the numbers 0 to its length - 1 once."""
    return isinstance(shuffles, list | tuple) and set(map(repr, shuffles)) == set(map(repr, range(len(shuffles))))


def check_state(state: LoaderState, now: LoaderState, total: int | None) -> None:
    """Refuse a state that the loader, as it is now, cannot go on with.

    Parameters
    ----------
    state
        What is loaded.
    now
        The loader's own.
    total
        Samples in its epochs, where they are known.

    Raises
    ------
    UsageError
        When data, seed or sampler are others.
    """
    if (state.data, state.samples) != (now.data, now.samples):
        raise UsageError(
            "data of the loader's state",
            found=f"{state.samples} samples, digest {state.data[:12]}",
            expected=f"{now.samples} samples, digest {now.data[:12]}",
            remedy="use the data set, fields and targets that it was saved with",
        )
    saved, own = state.order, now.order
    is_same = (saved.kind, saved.of) == (own.kind, own.of)
    if not is_same or (saved.kind == UNKNOWN and saved.sampler != own.sampler):
        raise UsageError(
            "sampler of the loader's state",
            found=_described(saved),
            expected=_described(own),
            remedy="use the sampler that it was saved with",
        )
    if None not in (saved.seed, own.seed) and saved.seed != own.seed:
        raise UsageError(
            f"seed of the loader's state ({saved.sampler})",
            found=str(saved.seed),
            expected=str(own.seed),
            remedy="seed the sampler or the generator as when it was saved",
        )
    if total is not None and state.position > total:
        raise UsageError("position of the loader's state", found=str(state.position), expected=f"at most {total}")


def digest_of(data: Any) -> str:
    """Return a digest of what the indices of a data set mean, equal for all grids.

    Of others than a VolumeDataset, which cannot be asked, it is one of the class.
    """
    if not isinstance(data, VolumeDataset):
        return hashlib.sha256(f"{type(data).__module__}.{type(data).__qualname__}".encode()).hexdigest()
    digest = hashlib.sha256()
    for names in (data.field_names, data.target_names, data.sample_ids):
        digest.update(f"{len(names)};".encode())
        for some in in_lots(f"{len(name)};{name}" for name in names):
            digest.update(some)
    if data.parts != Parts():
        digest.update(repr(data.parts).encode())
    return digest.hexdigest()


def _described(token: OrderToken) -> str:
    return f"{token.sampler} ({token.kind}{f' {token.of[:12]}' if token.of else ''})"
