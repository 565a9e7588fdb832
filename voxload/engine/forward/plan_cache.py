"""Plans: the plans of one network, for as many shapes and modes as it runs with; nothing is sent."""

from __future__ import annotations

import copy
import warnings
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from voxload.engine.arithmetic.blocks import Blocks
from voxload.engine.arithmetic.split_plan import SplitPlan
from voxload.engine.forward.inputs import Inputs, TensorSpec
from voxload.engine.forward.layer_uses import PlannedSplit
from voxload.engine.forward.planning import GATHER_LIMIT, ForwardPlan, plan_forward
from voxload.engine.forward.recording import Recording, record
from voxload.engine.forward.sharding import Sharding
from voxload.engine.model.meta_runs import whole_size
from voxload.engine.model.pytrees import token
from voxload.engine.model.skeleton import Skeleton
from voxload.engine.run.tensors import autocast_type
from voxload.grid import ProcessGrid

_ANEW = 4
"""Recordings in a row for one setting that are told of."""
_CHOICES = ("min_width", "gather_limit", "returns_whole", "columns", "split")
"""What of the options planning is told."""
_PLANS = 32
"""Plans that are kept, for as many shapes, modes and numbers that forward is called with."""


@dataclass(frozen=True, slots=True)
class SplitOptions:
    """How a network is to be split."""

    grid: ProcessGrid
    """This rank's view of the grid."""
    blocks: Blocks | None
    """Cut of the volume; None where the blocks say it, pass by pass."""
    min_width: int = 0
    """An axis whose blocks would have fewer voxels than this goes to fewer ranks."""
    gather_limit: int = GATHER_LIMIT
    """Bytes up to which tensors are made whole for a call that has no split form."""
    returns_whole: bool = False
    """Whether every rank gets the whole of all results."""
    columns: bool = False
    """Whether a dense layer over what is cut multiplies each rank's part with its columns of the weight."""
    plan: SplitPlan | None = None
    """What layers use the grid's axes for; None where all cut volumes in space."""

    @property
    def split(self) -> PlannedSplit | None:
        """The plan on the grid."""
        return None if self.plan is None else PlannedSplit(self.plan, self.grid.spatial)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class PlannedPass:
    """The plan of passes with inputs of one kind."""

    recording: Recording
    """What forward asks of torch."""
    plan: ForwardPlan
    """How that is carried out."""
    cuts: tuple[Sharding, ...]
    """Cuts of the tensors that forward is called with."""
    digest: int
    """A number that differs where anything of it does."""


class Known(OrderedDict[Any, PlannedPass | None]):
    """Plans that were made, by what they are for."""


_SHARED: ContextVar[Known | None] = ContextVar("shared", default=None)


@contextmanager
def plans_shared() -> Iterator[None]:
    """Let all networks that are split meanwhile, in this thread, have one set of plans: of copies of one network."""
    before = _SHARED.set(Known())
    try:
        yield
    finally:
        _SHARED.reset(before)


class PlanCache:
    """The plans of one network.

    Parameters
    ----------
    model
        The network as it was given.
    cut
        How it is split.

    Raises
    ------
    UsageError
        When the network cannot be copied.
    """

    def __init__(self, model: nn.Module, cut: SplitOptions) -> None:
        self.cut = cut
        self._skeleton = Skeleton(model)
        self._anew = 0
        self._last: tuple[str, ...] = ()
        shared = _SHARED.get()
        self._plans = Known() if shared is None else shared

    def __deepcopy__(self, memo: dict[int, Any]) -> PlanCache:
        twin = copy.copy(self)
        twin.__dict__["_skeleton"] = copy.deepcopy(self._skeleton, memo)
        twin.__dict__["_plans"] = self._plans.copy()
        return twin

    @property
    def settings(self) -> str:
        """What of the network all ranks must have alike, as text."""
        return self._skeleton.settings

    def settings_of(self, network: nn.Module) -> Any:
        """Return the network's present modes and attributes, which differ where any of them does."""
        self._skeleton.follow(network)
        return self._skeleton.key

    def trained(self, network: nn.Module) -> tuple[bool, ...]:
        """Tell of every weight of the network whether gradients are wanted of it."""
        return self._skeleton.trained(network)

    @property
    def changed(self) -> tuple[str, ...]:
        """Paths of attributes that had another value when they were last asked for than before."""
        return self._skeleton.changed

    def of(self, network: nn.Module, inputs: Inputs, blocks: Blocks) -> PlannedPass:
        """Return the plan for inputs like these where the volume is cut into `blocks`; made at its first use.

        `network` is the one that runs, in the modes in which it will. Raises UsageError for what is refused.
        """
        self._skeleton.follow(network)
        cuts = inputs.cuts(blocks)
        whole = inputs.whole(cuts)
        key = (
            token((whole.args, dict(whole.kwargs))),
            blocks,
            self._skeleton.key,
            torch.is_grad_enabled(),
            autocast_type(inputs.tensors[0].device.type),
            tuple(whole.tensors),
        )
        known = self._plans.get(key)
        if known is not None:
            self._plans.move_to_end(key)
            self._anew = 0
            return known
        self._watch(type(network).__name__)
        recording = record(self._skeleton, network, whole)
        choices = {name: getattr(self.cut, name) for name in _CHOICES}
        plan = plan_forward(recording, cuts, **choices)
        digest = zlib.crc32(repr((recording.described(), cuts, choices)).encode())
        made = self._plans[key] = PlannedPass(recording, plan, cuts, digest)
        if len(self._plans) > _PLANS:
            self._plans.popitem(last=False)
        return made

    def _watch(self, name: str) -> None:
        """Warn of settings for which forward is recorded anew again and again, such as a counter of calls."""
        changed = self._skeleton.changed
        self._anew = self._anew + 1 if changed and set(changed) & set(self._last) else int(bool(changed))
        self._last = changed
        if self._anew == _ANEW:
            told = ", ".join(map(repr, changed))
            warnings.warn(
                f"{name} was recorded {_ANEW} times in a row, because {told} had another value "
                "in each pass; that takes longer than the pass. Keep such values in a tensor, or outside of the model",
                RuntimeWarning,
                stacklevel=2,
            )

    def ahead(self, network: nn.Module, shape: Sequence[int]) -> PlannedPass | None:
        """Return the plan for a batch of two volumes of this shape, in the network's present modes.

        None where the network takes no single volume of this shape. Raises UsageError for what is refused.
        """
        self._skeleton.follow(network)
        key = tuple(shape), self._skeleton.key
        if key not in self._plans:
            self._plans[key] = self._ahead(network, shape)
        return self._plans[key]

    def _ahead(self, network: nn.Module, shape: Sequence[int]) -> PlannedPass | None:
        size, blocks = whole_size(network, shape), self.cut.blocks
        if size is None or blocks is None:
            return None
        weight = next((each for each in network.parameters() if each.is_floating_point()), torch.empty(0))
        own = blocks.box(self.cut.grid.coords).shape[-len(shape) :]
        spec = TensorSpec((*size[:2], *own), weight.dtype, weight.device)
        return self.of(network, Inputs((spec,), {}), blocks)
