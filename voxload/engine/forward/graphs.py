"""Graphs: passes of a network whose own forward runs on blocks, as parts of the graphs that torch's compiler makes.

The compiler does not follow a forward on blocks. It takes a whole pass as one call, and traces the operations that are
left of it: those on this rank's block, and the engine's messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from threading import local
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary, ref

import torch
from torch import Tensor, nn
from torch._guards import tracing
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from voxload.engine.agreement import agree, ticket_of
from voxload.engine.blocks import Blocks
from voxload.engine.forward.block import runner_of
from voxload.engine.forward.inputs import Inputs
from voxload.engine.forward.passes import Passes, first_of, modes_of
from voxload.engine.forward.plans import Planned
from voxload.engine.forward.rules.dropping import DROPOUTS, Drop
from voxload.engine.forward.ruling import Here
from voxload.engine.forward.running import run
from voxload.engine.forward.sharding import Sharding
from voxload.errors import InternalError, UsageError


@dataclass(frozen=True, eq=False)
class Graphed:
    """A network whose passes graphs may hold; it is found by its number as long as it lives."""

    network: ref[nn.Module]
    passes: Passes
    forward: Callable[..., Any]
    """The user's own, given the network before its arguments."""
    begins: WeakKeyDictionary[Planned, dict[str, Begin]] = field(default_factory=WeakKeyDictionary)
    """What passes of graphs begin with, by plan and by what all ranks must have alike."""
    number: int = field(default_factory=count(1).__next__)

    def __post_init__(self) -> None:
        _GRAPHED[self.number] = self

    def run(self, network: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what the user's forward gives, while a compiler traces it."""
        with _apart():
            planned, begin = self._begin(network, Inputs.of(args, kwargs))
        seeds = _Seeds(agree(first_of((args, kwargs)), begin.ticket))
        here = self.passes.here(planned, seeds)
        with _NoDraws(), _WholeDrops(here):  # type: ignore[no-untyped-call] # torch leaves it untyped
            return run(partial(self.forward, network), args, kwargs, planned.cuts, plan=planned.plan, here=here)

    def _begin(self, network: nn.Module, inputs: Inputs) -> tuple[Planned, Begin]:
        """Return the plan of passes with inputs like these, and what they begin with; nothing is sent."""
        plans = self.passes.plans
        if plans.cut.blocks is None:
            raise UsageError(
                "torch.compile of a split network", found="no shape", remedy="give shape= to voxload.engine.shard"
            )
        planned = plans.of(network, inputs, plans.cut.blocks)
        modes, refusal = modes_of(network, inputs)
        if refusal is not None:
            raise refusal
        known = self.begins.setdefault(planned, {})
        if modes not in known:
            known[modes] = Begin(self, planned.digest, modes, plans.settings_of(network))
        return planned, known[modes]


class Begin:
    """What every pass of one graph begins with: all ranks run this plan, with the attributes that it was made for."""

    def __init__(self, graphed: Graphed, digest: int, modes: str, settings: Any) -> None:
        self._network, self._passes = graphed.network, graphed.passes
        self._digest, self._modes, self._settings = digest, modes, settings
        self.ticket = ticket_of(self)

    def agreed(self, x: Tensor) -> tuple[Blocks, Tensor]:
        """Return the cut of the volume and the seed of a pass; raises the same error on all ranks, as Passes do."""
        blocks, seed = self._passes.agree(x, self._digest, self._modes, refusal=self._refusal())
        return blocks, torch.tensor(seed, dtype=torch.int64)

    def _refusal(self) -> UsageError | None:
        """Return why the graph is none of the network as it is now; None where it is."""
        network, plans = self._network(), self._passes.plans
        try:
            if network is None or plans.settings_of(network) == self._settings:
                return None
        except UsageError as error:
            return error
        return UsageError(
            "a compiled split network",
            found=f"another value of {', '.join(map(repr, plans.changed)) or 'an attribute'} than in its graph",
            expected="attributes that stay what they were when it was compiled",
            remedy="call torch.compiler.reset() after such a change, or leave the network uncompiled",
        )


_GRAPHED: WeakValueDictionary[int, Graphed] = WeakValueDictionary()


def in_graph(network: nn.Module, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result of the network of this number, as part of the graph of a compiler that follows this function.

    Training modes are asked for here, where the compiler sees it, so that it makes a graph for each.
    """
    _begin_call()
    modes = tuple(module.training for module in network.modules())
    tensors = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    result = _Opaque.call(number, modes, tensors, args, kwargs)
    _end_call()
    return result


class _Opaque(local):
    """What the compiler takes as one call; made when there is a compiler, which takes seconds to import."""

    call: Any = None
    is_followed: bool = False
    """Whether the compiler follows `in_graph`, in this thread."""
    refusal: UsageError | None = None
    """Why it must not go on."""


_OPAQUE = _Opaque()


def _begin_call() -> bool:
    """Tell the compiler of `_called`, once."""
    if _Opaque.call is None:
        _Opaque.call = staticmethod(torch._dynamo.nonstrict_trace(_called))  # noqa: SLF001 - where torch documents it
    _OPAQUE.is_followed, _OPAQUE.refusal = True, None
    return True


def _end_call() -> bool:
    """Raise what `_called` had to refuse: the compiler would tell of an error within it as one of its own."""
    _OPAQUE.is_followed = False
    if _OPAQUE.refusal is not None:
        raise _OPAQUE.refusal
    return True


# What torch.compiler.assume_constant_result sets: the compiler calls them, and does not follow them.
for _each in (_begin_call, _end_call):
    _each._dynamo_marked_constant = True  # type: ignore[attr-defined] # noqa: SLF001 - as above


def _called(
    number: int, modes: tuple[bool, ...], tensors: Mapping[str, Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Carry out one pass with the compiler's stand-ins in the places of the network's tensors."""
    graphed = _GRAPHED.get(number)
    network = None if graphed is None else graphed.network()
    if graphed is None or network is None or modes != tuple(module.training for module in network.modules()):
        raise InternalError("a compiled split network", found="a network that is gone or has other modes by now")
    named = {f"network.{name}": tensor for name, tensor in tensors.items()}
    try:
        return torch.func.functional_call(_Caller(network, graphed), named, (args, kwargs))
    except UsageError as error:
        if not _OPAQUE.is_followed:
            raise
        _OPAQUE.refusal = error
        return ()


class _Caller(nn.Module):
    """Runs a network past what wraps its call, such as hooks, which the compiler has followed already."""

    def __init__(self, network: nn.Module, graphed: Graphed) -> None:
        super().__init__()
        self.network = network
        self.graphed = graphed

    def forward(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.graphed.run(self.network, args, kwargs)


@contextmanager
def _apart() -> Iterator[None]:
    """Let what is done meanwhile, such as a recording, be none of what the compiler traces."""
    with _disable_current_modes(), tracing(None):
        yield


class _Seeds:
    """Seeds of the calls that drop, one after the other, from that of the pass."""

    def __init__(self, seed: Tensor) -> None:
        self._seed, self._count = seed, 0

    def __call__(self) -> Tensor:
        """Return the next one; raises UsageError where the call may be made again in the backward pass."""
        if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:  # noqa: SLF001, FBT003 - torch has no public way to ask
            raise UsageError(
                "torch.compile of a split network",
                found="dropout in a part of forward that is checkpointed, which would drop others when it is run again",
                expected="checkpointing of parts without dropout, or none",
            )
        self._count += 1
        return self._seed + self._count


class _WholeDrops(TorchFunctionMode):
    """Drops elements of what every rank has whole, too, by a hash: the generator's numbers would differ."""

    def __init__(self, here: Here) -> None:
        super().__init__()
        self._here = here

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Carry out one call."""
        given = dict(kwargs or {})
        if func not in DROPOUTS or runner_of(args, given) is not None:
            return func(*args, **given)
        x: Tensor = args[0] if args else given["input"]
        return Drop(Sharding.whole(x.shape)).run(func, args, given, self._here)


class _NoDraws(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch leaves it untyped
    """Refuses random numbers: the generators of two ranks are at different places when their graphs run."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise UsageError(
                "torch.compile of a split network",
                found=f"{func}, which draws random numbers that all ranks must have alike",
                expected="no random numbers in forward but those of dropout",
                remedy="draw them outside and hand them to forward, or leave the network uncompiled",
            )
        return func(*args, **(kwargs or {}))
