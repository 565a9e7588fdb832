"""Compiled passes: those of a network whose own forward runs on blocks, as parts of the graphs of torch's compiler.

The compiler does not follow a forward on blocks. It takes a whole pass as one call, and traces the operations that are
left of it: those on this rank's block, and the engine's messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from threading import local
from typing import Any
from weakref import WeakValueDictionary, ref

import torch
from torch import Tensor, nn
from torch._guards import tracing
from torch.utils._python_dispatch import _disable_current_modes

from voxload.engine.arithmetic.blocks import Blocks
from voxload.engine.forward.compiled_draws import HashedDraws, NoDraws, Seeds
from voxload.engine.forward.inputs import Inputs
from voxload.engine.forward.passes import Passes, first_of
from voxload.engine.forward.plan_cache import PlannedPass
from voxload.engine.forward.running import run
from voxload.engine.run.handshake import agree, ticket_of
from voxload.errors import InternalError, UsageError


@dataclass(frozen=True, eq=False)
class CompilableNetwork:
    """A network whose passes graphs may hold; it is found by its number as long as it lives."""

    network: ref[nn.Module]
    passes: Passes
    forward: Callable[..., Any]
    """The user's own, given the network before its arguments."""
    begins: dict[Any, Begin] = field(default_factory=dict)
    """What passes of graphs begin with, by plan, modes and attributes; a graph may outlive its plan."""
    number: int = field(default_factory=count(1).__next__)

    def __post_init__(self) -> None:
        _GRAPHED[self.number] = self

    def run(self, network: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what the user's forward gives, while a compiler traces it."""
        with _apart():
            planned, begin = self._begin(network, Inputs.of(args, kwargs))
        seeds = Seeds(agree(first_of((args, kwargs)), begin.ticket))
        here = replace(self.passes.here(planned, seeds), hashes=True)
        with NoDraws(), HashedDraws(here):  # type: ignore[no-untyped-call] # torch leaves it untyped
            return run(partial(self.forward, network), args, kwargs, planned.cuts, plan=planned.plan, here=here)

    def _begin(self, network: nn.Module, inputs: Inputs) -> tuple[PlannedPass, Begin]:
        """Return the plan of passes with inputs like these, and what they begin with; nothing is sent."""
        plans = self.passes.plans
        if plans.cut.blocks is None:
            raise UsageError(
                "torch.compile of a split network", found="no shape", remedy="give shape= to voxload.engine.shard"
            )
        planned = plans.of(network, inputs, plans.cut.blocks)
        modes, refusal = self.passes.modes(network, inputs)
        if refusal is not None:
            raise refusal
        key = planned.digest, modes, plans.settings_of(network)
        if key not in self.begins:
            self.begins[key] = Begin(self, *key)
        return planned, self.begins[key]


class Begin:
    """What every pass of one graph begins with: all ranks run this plan, with the attributes that it was made for."""

    def __init__(self, graphed: CompilableNetwork, digest: int, modes: str, settings: Any) -> None:
        self._network, self._passes = graphed.network, graphed.passes
        # Random numbers of graphs are others: a rank that runs one has company that does.
        self._digest, self._modes, self._settings = digest, f"graph {modes}", settings
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


_GRAPHED: WeakValueDictionary[int, CompilableNetwork] = WeakValueDictionary()


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
    error: Exception | None = None
    """In what the call has ended."""


_OPAQUE = _Opaque()


def _begin_call() -> bool:
    """Tell the compiler of `_called`, once."""
    if _Opaque.call is None:
        opaque = getattr(torch._dynamo, "nonstrict_trace", None)  # noqa: SLF001 - where torch documents it
        if opaque is None:
            raise UsageError(
                "torch.compile of a split network whose own forward runs",
                found=f"torch {torch.__version__}",
                expected="torch 2.7 or later",
                remedy="leave it uncompiled, or install a later torch",
            )
        _Opaque.call = staticmethod(opaque(_called))
    _OPAQUE.is_followed, _OPAQUE.error = True, None
    return True


def _end_call() -> bool:
    """Raise the error in which `_called` has ended: the compiler would tell of another one in its place."""
    _OPAQUE.is_followed = False
    if _OPAQUE.error is not None:
        raise _OPAQUE.error
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
    try:
        with _in_place(network, tensors):
            return graphed.run(network, args, kwargs)
    except Exception as error:
        if not _OPAQUE.is_followed:
            raise
        _OPAQUE.error = error
        return ()


@contextmanager
def _in_place(network: nn.Module, tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """Put stand-ins into the places of a network's tensors meanwhile, each into all that have it.

    ``torch.func.functional_call`` does not put those back that a module has under two names.
    """
    own = (*network.named_parameters(), *network.named_buffers())
    twins = {id(tensor): tensors[name] for name, tensor in own}
    held: list[dict[str, Any]] = [
        each
        for module in network.modules()
        for each in (module._parameters, module._buffers)  # noqa: SLF001 - torch has no public way
    ]
    before = [dict(each) for each in held]
    for each in held:
        each.update({name: twins[id(tensor)] for name, tensor in each.items() if tensor is not None})
    after = [dict(each) for each in held]
    try:
        yield
        changed = [
            name for now, then in zip(held, after, strict=True) for name in then if now.get(name) is not then[name]
        ]
        if changed:
            raise UsageError(
                "torch.compile of a split network",
                found=f"another tensor in the place of {changed[0]!r} after forward",
                expected="tensors that forward writes into, such as by copy_(), and does not replace",
            )
    finally:
        for each, then in zip(held, before, strict=True):
            each.update(then)


@contextmanager
def _apart() -> Iterator[None]:
    """Let what is done meanwhile, such as a recording, be none of what the compiler traces."""
    with _disable_current_modes(), tracing(None):
        yield
