"""Ruling: what a call of torch does on blocks, as one of the rules of `rules` says."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from voxload.engine.arithmetic.axis_plan import AxisPlan, Part
from voxload.engine.arithmetic.split_plan import IN_SPACE, Use
from voxload.engine.exchange.protocol import Exchange
from voxload.engine.forward.recording import Call
from voxload.engine.forward.sharding import Sharding
from voxload.engine.model.pytrees import leaves
from voxload.engine.run.join import Chooser, FixedJoin, Join

T = TypeVar("T")


class NoRule(Exception):  # noqa: N818 - says what there is not
    """A call has no split form in this cut; the message says why."""


_SEEDS = 2**62
PADS = FixedJoin(Join.PAD)
"""Convolutions pad their blocks."""


def drawn() -> Tensor:
    """Draw a seed, an int64 scalar, from torch's random numbers, which the ranks of a group have alike in a pass."""
    return torch.randint(_SEEDS, (), dtype=torch.int64)


@dataclass(frozen=True, slots=True)
class Context:
    """Where a call is carried out."""

    coords: tuple[int, ...]
    """This rank's place in its sample group, per axis of the grid."""
    mesh: tuple[int, ...]
    """Blocks of a sample group, per axis of the grid."""
    exchange: Exchange
    """Carries the messages."""
    memory: dict[Any, Any] = field(default_factory=dict)
    """What calls made of their plans for this rank; kept from pass to pass for as long as the plan lives."""
    seeds: Callable[[], Tensor] = drawn
    """Gives the seed of the next call that drops; all ranks of a group get the same ones."""

    hashes: bool = False
    """Whether random numbers are hashes of seeds and positions, as in graphs, where no generator is alike."""
    chooser: Chooser = PADS
    """Says how convolutions join halos."""

    def part(self, plan: AxisPlan, dim: int) -> Part:
        """Return this rank's part of a gather along a dimension of a tensor."""
        key = id(plan), dim
        found: Part | None = self.memory.get(key)
        if found is None:
            found = self.memory[key] = plan.at(self.coords[plan.axis], dim=dim)
        return found

    def remembered(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what `make` gave for this key at first; a key has the identity of what the plan holds."""
        if key not in self.memory:
            self.memory[key] = make()
        found: T = self.memory[key]
        return found


class Action(Protocol):
    """Carries out a call on this rank's blocks; frozen, the same on all ranks, shared by threads."""

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Context) -> Any:
        """Return the blocks of the results; arguments are the call's own, with blocks in the places of values."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a call does with values that are cut in a certain way."""

    inputs: tuple[Sharding, ...]
    """Cut in which it takes each of its values; what is cut otherwise is brought to that first."""
    results: tuple[Sharding, ...]
    """Cut of each value that it gives."""
    action: Action
    """What is done then."""
    nbytes: int = 0
    """Bytes of what is made whole on the way, beside values that are taken whole."""


@dataclass(frozen=True, slots=True)
class LayerSplit:
    """What a layer with weights uses the axes of the grid for, as a plan says."""

    uses: tuple[Use, ...]
    """Per axis of the grid."""
    mesh: tuple[int, ...]
    """Blocks of a sample group, per axis of the grid."""
    behind: tuple[Use, ...] = IN_SPACE
    """Uses of the next layer with weights that takes the result."""
    min_width: int = 0
    """An axis cuts no volume whose blocks would have fewer voxels than this."""

    def axes(self, *uses: Use) -> list[int]:
        """Return the axes of several blocks that are used for any of these."""
        return [axis for axis, use in enumerate(self.uses) if use in uses and self.mesh[axis] > 1]

    @property
    def is_in_space(self) -> bool:
        """Whether all axes cut the volume."""
        return len(self.axes(Use.SPACE)) == sum(blocks > 1 for blocks in self.mesh)


@dataclass(frozen=True, slots=True)
class Preferences:
    """What a rule may take into account beside the call."""

    cut: Sharding | None = None
    """Cut of the result with which nothing would have to be moved afterwards."""
    min_width: int = 0
    """An axis whose blocks would have fewer voxels than this goes to fewer ranks."""
    kept: tuple[tuple[int, ...], ...] | None = None
    """Positions along every dimension of the result that are looked at; None where that may be all."""
    columns: bool = False
    """Whether a dense layer over a dimension that is cut adds up what the ranks' own columns give."""
    split: LayerSplit | None = None
    """What a plan has the axes of the grid used for; None without a plan."""


Rule = Callable[[Call, tuple[Sharding, ...], Preferences], Ruling]
"""Returns what a call does, of whose values the cuts are given; pure. Raises NoRule."""


@dataclass(frozen=True, slots=True)
class Same:
    """The call itself, on blocks."""

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Context) -> Any:  # noqa: ARG002 - see Action
        """Call it."""
        return function(*args, **kwargs)


@dataclass(frozen=True, slots=True)
class Kept:
    """Nothing: the blocks themselves are given back."""

    places: tuple[int, ...]
    """Which of the tensors that the call takes."""

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Context) -> Any:  # noqa: ARG002 - see Action
        """Give them back; see Action."""
        tensors = [leaf for leaf in leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        found = tuple(tensors[place] for place in self.places)
        return found[0] if len(found) == 1 else found


def whole(call: Call, cuts: Sequence[Sharding]) -> Ruling:
    """Return the ruling by which every rank gets all values whole and does what one process does."""
    return Ruling(
        tuple(Sharding.whole(cut.shape) for cut in cuts),
        tuple(Sharding.whole(made.shape) for made in call.made),
        Same(),
    )


_DEFAULTS: Mapping[str, Any] = {
    "bias": None,
    "stride": None,
    "padding": 0,
    "dilation": 1,
    "groups": 1,
    "output_padding": 0,
    "ceil_mode": False,
    "return_indices": False,
    "count_include_pad": True,
    "divisor_override": None,
}
"""Defaults of torch that several functions share."""


def bound(names: tuple[str, ...], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's arguments by their names, those that were not given too where they have a default."""
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    return {name: given.get(name, _DEFAULTS.get(name)) for name in names}
