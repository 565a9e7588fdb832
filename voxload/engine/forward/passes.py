"""Passes: the forward passes of one split network: the ranks agree, a plan is made or found, and carried out."""

from __future__ import annotations

import copy
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from voxload.engine.arithmetic.blocks import Blocks
from voxload.engine.exchange.protocol import Exchange
from voxload.engine.forward.inputs import Inputs
from voxload.engine.forward.plan_cache import PlanCache, PlannedPass
from voxload.engine.forward.planning import Fallback
from voxload.engine.forward.rule import Context, drawn
from voxload.engine.forward.running import WATCH, run
from voxload.engine.model.pytrees import leaves
from voxload.engine.run.handshake import Greeting, agreed
from voxload.engine.run.join import Chooser
from voxload.engine.run.tensors import autocast_type
from voxload.errors import InternalError, UsageError

_IMAGE = 4
"""Dimensions of a batch of images."""


class Passes:
    """The forward passes of one network.

    Parameters
    ----------
    plans
        Its plans.
    exchange
        Carries the messages.
    chooser
        Says how convolutions join halos.
    """

    def __init__(self, plans: PlanCache, exchange: Exchange, chooser: Chooser) -> None:
        self.plans, self.exchange, self._chooser = plans, exchange, chooser
        self._memory: WeakKeyDictionary[PlannedPass, dict[Any, Any]] = WeakKeyDictionary()
        self._told: set[str] = set()
        WATCH.hold(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Passes:
        return Passes(copy.deepcopy(self.plans, memo), self.exchange, copy.deepcopy(self._chooser, memo))

    def run(
        self, network: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Return what `forward`, that of the user's class, gives of this rank's blocks; see `voxload.engine.shard`."""
        inputs = Inputs.of(args, kwargs)
        planned, refusal = None, None
        if self.plans.cut.blocks is not None:
            try:
                planned = self.plans.of(network, inputs, self.plans.cut.blocks)
            except UsageError as error:
                refusal = error
        # All ranks hear of what one of them has to refuse before any of them sends a voxel.
        digest = 0 if planned is None else planned.digest
        modes, wrong = self.modes(network, inputs)
        blocks, seed = self.agree(first_of((args, kwargs)), digest, modes, refusal=wrong or refusal)
        if planned is None:
            planned = self.plans.of(network, inputs, blocks)
            self._compare(planned.digest)
        with seeded(seed, inputs.tensors[0].device):
            return run(forward, args, kwargs, planned.cuts, plan=planned.plan, here=self.here(planned, drawn))

    def here(self, planned: PlannedPass, seeds: Callable[[], Tensor]) -> Context:
        """Return where a pass is carried out that was planned and that the ranks have agreed to begin."""
        if planned not in self._memory:
            self._memory[planned] = {}
            self._tell(planned.plan.fallbacks)
        grid = self.plans.cut.grid
        return Context(grid.coords, grid.spatial, self.exchange, self._memory[planned], seeds, chooser=self._chooser)

    def modes(self, network: nn.Module, inputs: Inputs) -> tuple[str, UsageError | None]:
        """Return as text what all ranks must have alike beside network and plan; and why inputs are refused, if so."""
        device = inputs.tensors[0].device.type if inputs.tensors else "cpu"
        refusal: UsageError | None = None
        try:
            described = inputs.described()
        except UsageError as error:
            described, refusal = str(error), error
        trained = self.plans.trained(network)
        return repr((torch.is_grad_enabled(), autocast_type(device), described, trained)), refusal

    def agree(self, first: Tensor, digest: int, modes: str, *, refusal: UsageError | None) -> tuple[Blocks, int]:
        """Return the cut of the volume and the seed that the ranks of the group agree on.

        Raises the same error on all ranks where they do not fit together.

        Parameters
        ----------
        first
            The first tensor that the network is called with.
        digest
            That of the plan; 0 where it follows from what the ranks agree on.
        modes
            What else all ranks must have alike.
        refusal
            What this rank has to refuse, which it raises when the others have heard of it.
        """
        volume = first.unsqueeze(2) if first.ndim == _IMAGE else first  # an image is a volume of one plane
        greeting = Greeting.of(
            volume,
            network=digest or zlib.crc32(self.plans.settings.encode()),
            modes=zlib.crc32(modes.encode()),
            seed=pass_seed(),
            refused=refusal is not None,
        )
        rows = self.exchange.share(greeting.numbers)
        if refusal is not None:
            raise refusal
        return agreed(rows, self.plans.cut.grid, self.plans.cut.blocks)

    def _compare(self, digest: int) -> None:
        """Raise InternalError on all ranks where the plans of this pass, which followed from the blocks, differ."""
        for rank, (other,) in zip(self.plans.cut.grid.group_ranks, self.exchange.share([digest]), strict=True):
            if other != digest:
                raise InternalError(
                    f"rank {rank}",
                    found=f"another network or plan than on rank {self.plans.cut.grid.rank}",
                    expected="the same on all ranks of a sample group",
                    remedy="build the same model, of the same version of voxload, on every rank",
                )

    def _tell(self, fallbacks: Sequence[Fallback]) -> None:
        """Warn of calls that run on whole tensors, each once, on the first rank of a group."""
        for each in fallbacks:
            if each.name not in self._told:
                self._told.add(each.name)
                if not any(self.plans.cut.grid.coords):
                    warnings.warn(
                        f"{each.name} takes {each.nbytes:,} bytes whole on every rank: {each.reason}",
                        RuntimeWarning,
                        stacklevel=2,
                    )


def first_of(given: Any) -> Tensor:
    """Return the first tensor among arguments; one without elements where there is none, which no rank takes."""
    return next((leaf for leaf in leaves(given) if isinstance(leaf, Tensor)), torch.empty(0))


def pass_seed() -> int:
    """Draw the seed of a pass from this process's random numbers; that of a group's first rank counts for all."""
    return int(drawn())


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Give all ranks of a group the same random numbers for a pass, and this rank its own ones back."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.manual_seed(seed)
        yield
