"""OnBlocks: a network of the user's class whose forward runs on blocks."""

from __future__ import annotations

from collections import OrderedDict
from functools import cache, partial
from typing import Any, cast
from weakref import ref

import torch
from torch import nn

from voxload.engine.exchange.protocol import Exchange
from voxload.engine.forward.block import Block
from voxload.engine.forward.compiled import CompilableNetwork, in_graph
from voxload.engine.forward.passes import Passes
from voxload.engine.forward.plan_cache import PlanCache
from voxload.engine.forward.rule import PADS
from voxload.engine.model.pytrees import leaves
from voxload.engine.model.sync_batch_norm import synced
from voxload.engine.run.join import Chooser
from voxload.engine.run.torch_compile import refuse_export, require_whole_graph
from voxload.errors import UsageError

_PASSES, _HOOKED, _KIND = "_voxload_passes", "_voxload_hooks", "_voxload_kind"
_GRAPHED, _NUMBER = "_voxload_graphed", "_voxload_number"
_HOOKS = (
    *("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_forward_hooks", "_forward_hooks_with_kwargs"),
    *("_forward_hooks_always_called", "_backward_pre_hooks", "_backward_hooks"),
)
"""Where a module has its hooks around forward and backward."""


class OnBlocks(nn.Module):
    """What `on_blocks` puts before the user's class; everything but forward is that class's."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the network's result for the samples of which tensors among the arguments are this rank's blocks."""
        if torch.compiler.is_dynamo_compiling():
            require_whole_graph()
            return in_graph(self, self.__dict__[_NUMBER], args, kwargs)
        if any(isinstance(leaf, Block) for leaf in leaves((args, kwargs))):
            return super().forward(*args, **kwargs)  # called again from within
        if torch.compiler.is_compiling():
            refuse_export(type(self).__name__)
        passes: Passes = self.__dict__[_PASSES]
        return passes.run(self, partial(_of_user, self), args, kwargs)

    def _voxload_hooked(self, *args: Any, **kwargs: Any) -> Any:
        """Call the user's forward with the hooks that the model had when it was split, which are part of it."""
        hooks = self.__dict__[_HOOKED]
        inner = object.__new__(getattr(type(self), _KIND))
        inner.__dict__.update(self.__dict__ | hooks)
        result = inner(*args, **kwargs)
        self.__dict__.update({name: value for name, value in inner.__dict__.items() if name not in hooks})
        return result

    def __reduce_ex__(self, protocol: Any) -> Any:
        # The class is made here, and is found by that of the user's.
        left_out = {_GRAPHED, _NUMBER, "_compiled_call_impl"}
        state = {name: value for name, value in self.__dict__.items() if name not in left_out}
        return _empty, (getattr(type(self), _KIND),), state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call] # torch leaves it untyped
        _register(self)  # a copy is a network of its own

    def extra_repr(self) -> str:
        """Return the grid, for ``print``."""
        grid = self.__dict__[_PASSES].plans.cut.grid
        return ", ".join(filter(None, (super().extra_repr(), f"spatial={grid.spatial}, rank={grid.rank}")))


def on_blocks(model: nn.Module, plans: PlanCache, exchange: Exchange, *, chooser: Chooser = PADS) -> nn.Module:
    """Return `model` made to run split: of its class, with its very layers, parameters, buffers and attributes.

    Hooks that the model has see the whole, as in one process; those that are put onto the result later see what this
    rank gives and gets.

    `plans` are those of the model; `chooser` says how convolutions join halos.

    Raises
    ------
    UsageError
        When the model has a forward that its class does not have, which would be called past the engine.
    """
    synced(model)
    if "forward" in vars(model):
        raise UsageError(
            type(model).__name__,
            found="a forward of its own, which its class does not have",
            expected="the forward of its class",
            remedy="put it into a module around this one",
        )
    network = cast("nn.Module", _empty(type(model)))
    held = dict(vars(model))
    hooks = {name: held[name] for name in _HOOKS}
    network.__dict__.update(held | {name: OrderedDict() for name in hooks})
    network.__dict__[_HOOKED] = hooks if any(hooks.values()) else {}
    network.__dict__[_PASSES] = Passes(plans, exchange, chooser)
    _register(network)
    return network


def _of_user(network: Any, *args: Any, **kwargs: Any) -> Any:
    """Call the user's forward."""
    forward = network._voxload_hooked if network.__dict__[_HOOKED] else super(OnBlocks, network).forward  # noqa: SLF001 - named so that no class of the user's has it
    return forward(*args, **kwargs)


def _register(network: Any) -> None:
    """Let graphs find a network."""
    held = network.__dict__
    held[_GRAPHED] = graphed = CompilableNetwork(ref(network), held[_PASSES], _of_user)
    held[_NUMBER] = graphed.number


@cache
def _class(kind: type) -> type:
    """Return the class of networks of the class `kind` that run on blocks."""
    return type(kind.__name__, (OnBlocks, kind), {"__module__": kind.__module__, "__doc__": kind.__doc__, _KIND: kind})


def _empty(kind: type) -> Any:
    return object.__new__(_class(kind))
