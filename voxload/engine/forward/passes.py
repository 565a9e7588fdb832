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

from voxload.engine.blocks import Blocks
from voxload.engine.exchange.protocol import Exchange
from voxload.engine.forward.inputs import Inputs
from voxload.engine.forward.planning import Fallback
from voxload.engine.forward.plans import Planned, Plans
from voxload.engine.forward.ruling import Here
from voxload.engine.forward.running import WATCH, run
from voxload.engine.forward.trees import leaves
from voxload.engine.handshake import Greeting, agreed
from voxload.engine.plan import Part
from voxload.errors import InternalError, UsageError

_SEEDS = 2**62
"""Number of seeds for a pass's random numbers."""
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
    """

    def __init__(self, plans: Plans, exchange: Exchange) -> None:
        self.plans, self.exchange = plans, exchange
        self._parts: WeakKeyDictionary[Planned, dict[tuple[int, int], Part]] = WeakKeyDictionary()
        self._told: set[str] = set()
        WATCH.hold(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Passes:
        return Passes(copy.deepcopy(self.plans, memo), self.exchange)

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
        trained = tuple(weight.requires_grad for weight in network.parameters())
        flags = (trained, str(refusal or ""))
        digest = 0 if planned is None else planned.digest
        blocks, seed = self._agreed(inputs, (args, kwargs), digest, flags)
        if refusal is not None:
            raise refusal
        if planned is None:
            planned = self.plans.of(network, inputs, blocks)
            self._compare(planned.digest)
        if planned not in self._parts:
            self._parts[planned] = {}
            self._tell(planned.plan.fallbacks)
        grid = self.plans.cut.grid
        here = Here(grid.coords, grid.spatial, self.exchange, self._parts[planned])
        with _seeded(seed, inputs.tensors[0].device):
            return run(forward, args, kwargs, planned.cuts, plan=planned.plan, here=here)

    def _agreed(self, inputs: Inputs, given: Any, digest: int, flags: Any) -> tuple[Blocks, int]:
        """Return the cut of the volume and the seed that the ranks of the group agree on."""
        first = next((leaf for leaf in leaves(given) if isinstance(leaf, Tensor)), torch.empty(0))
        volume = first.unsqueeze(2) if first.ndim == _IMAGE else first  # an image is a volume of one plane
        device = first.device.type
        casts = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
        refusal: UsageError | None = None
        try:
            described = inputs.described()
        except UsageError as error:
            described, refusal = str(error), error
        modes = repr((torch.is_grad_enabled(), casts, described, flags))
        greeting = Greeting.of(
            volume,
            network=digest or zlib.crc32(self.plans.settings.encode()),
            modes=zlib.crc32(modes.encode()),
            seed=pass_seed(),
        )
        found = agreed(self.exchange.share(greeting.numbers), self.plans.cut.grid, self.plans.cut.blocks)
        if refusal is not None:
            raise refusal
        return found

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


def pass_seed() -> int:
    """Draw the seed of a pass from this process's random numbers; that of a group's first rank counts for all."""
    return int(torch.randint(_SEEDS, ()))


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Give all ranks of a group the same random numbers for a pass, and this rank its own ones back."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.manual_seed(seed)
        yield
