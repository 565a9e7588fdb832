"""Tracing: the network's ``forward`` as a fixed list of operations, or a refusal that says what is in the way.

State: what the modules of a network hold, and whether a ``forward`` changes it. A split network does not run
``forward``, so what that keeps on the way, such as the last activation or a count of calls, would stay as it was when
it was traced.

torch.fx records what ``forward`` does with a stand-in for the volume. Whatever such a record would lose, such as
gradient modes, hooks, custom derivatives, random numbers drawn on the way, is refused here.
"""

from __future__ import annotations

import copy
import inspect
import random
from typing import Any

import torch
from torch import fx, nn
from torch.fx.proxy import TraceError

from voxload.engine.model.guards import is_library
from voxload.engine.run.autograd_functions import functions_watched
from voxload.errors import UsageError


class State:
    """The attributes, layers and buffers of a network's modules as they are now.

    Parameters
    ----------
    model
        The network.
    """

    def __init__(self, model: nn.Module) -> None:
        self._before = [
            (path, module, dict(vars(module)), {name: copy.copy(held) for name, held in _containers(module).items()})
            for path, module in model.named_modules()
        ]

    def restore(self) -> str | None:
        """Put back what was changed since; returns the path of the first that was, or None."""
        changed: list[str] = []
        for path, module, held, contents in self._before:
            now = vars(module)
            changed += [_join(path, name) for name in now if name not in held or now[name] is not held[name]]
            changed += [_join(path, name) for name in held if name not in now]
            now.clear()
            now.update(held)
            for name, content in contents.items():
                if not _same(now[name], content):
                    changed.append(_join(path, name))
                    _refill(now[name], content)
        return changed[0] if changed else None


def _containers(module: nn.Module) -> dict[str, Any]:
    return {name: held for name, held in vars(module).items() if isinstance(held, list | dict | set)}


def _same(one: Any, other: Any) -> bool:
    """Tell whether two containers of one kind hold the very same objects."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(value is other[key] for key, value in one.items())
    if isinstance(one, set):
        return bool(one == other)
    return len(one) == len(other) and all(value is each for value, each in zip(one, other, strict=True))


def _refill(container: Any, content: Any) -> None:
    container.clear()
    if isinstance(container, list):
        container.extend(content)
    else:
        container.update(content)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


_TRACE_ERRORS = (TraceError, AttributeError, LookupError, NameError, RuntimeError, TypeError, ValueError)
"""What Python and torch.fx raise when a stand-in is used like a real volume."""

_REMEDY = "move it out of forward, or after the engine's part of the model"


def trace(model: nn.Module) -> fx.Graph:
    """Return the operations of ``model.forward``, in order.

    Layers of torch stay whole, the user's own modules are entered. Not thread-safe: torch.fx replaces methods of
    ``nn.Module`` while it traces.

    Raises
    ------
    UsageError
        When ``forward`` is no fixed program of one volume, or does something that a trace cannot keep.
    """
    _refuse_hooks(model)
    _refuse_own_calls(model)
    _require_one_argument(model)
    state = State(model)
    before = random.getstate(), torch.get_rng_state()
    tracer = _Tracer()
    with functions_watched(_refuse_function):
        try:
            graph = tracer.trace(model)
        except UsageError:
            raise
        except _TRACE_ERRORS as error:
            raise _untraceable(model, error) from error
        finally:
            written = state.restore()
    if written is not None:
        raise UsageError(
            f"forward of {type(model).__name__}",
            found=f"a change of {written!r}, which a split network would not see",
            expected="a forward that leaves the attributes of its modules as they are",
            remedy="return what it keeps, or keep it outside of forward",
        )
    if before[0] != random.getstate() or not torch.equal(before[1], torch.get_rng_state()):
        raise UsageError(
            f"forward of {type(model).__name__}",
            found="random numbers drawn outside a layer",
            remedy="draw them in a layer after the flatten, such as nn.Dropout",
        )
    return graph


class _Tracer(fx.Tracer):
    """torch.fx's tracer, which refuses what it would lose."""

    def __init__(self) -> None:
        super().__init__()
        self._modes = _modes()

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        """Record an operation; a trace forgets under which gradient or autocast mode it ran."""
        if _modes() != self._modes:
            raise UsageError(
                "forward",
                found="torch.no_grad, enable_grad, inference_mode or autocast inside it",
                remedy="use them around the call of the model, or requires_grad_(False) on parameters",
            )
        return super().create_node(*args, **kwargs)

    def create_arg(self, a: Any) -> Any:
        """Record an argument; a tensor made on the way would be frozen into the trace."""
        known = isinstance(a, nn.Parameter) or any(a is buffer for buffer in self.root.buffers())
        if isinstance(a, torch.Tensor) and not known:
            raise UsageError(
                "forward",
                found=f"a tensor of shape {tuple(a.shape)} made inside it",
                remedy="register it as a buffer or a parameter of the model",
            )
        return super().create_arg(a)


def _modes() -> tuple[bool, ...]:
    """Return the modes of torch that a trace does not record."""
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), *map(torch.is_autocast_enabled, ("cpu", "cuda"))


def _refuse_function(apply: Any, function: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Refuse custom autograd functions while a trace runs: it would enter them and lose their derivative."""
    if any(isinstance(value, fx.Proxy) for value in (*args, *kwargs.values())):
        raise UsageError(f"custom autograd function {function.__name__}", found="no split form", remedy=_REMEDY)
    return apply(*args, **kwargs)


def _refuse_hooks(model: nn.Module) -> None:
    """Raise UsageError for hooks: they would run once, at tracing, and never again."""
    for name, module in model.named_modules():
        hooks = (
            module._forward_hooks,  # noqa: SLF001 - torch has no public way to ask for a module's hooks
            module._forward_pre_hooks,  # noqa: SLF001 - as above
            module._backward_hooks,  # noqa: SLF001 - as above
            module._backward_pre_hooks,  # noqa: SLF001 - as above
        )
        if any(hooks):
            raise UsageError(
                f"layer {name or 'at the root'!r} ({type(module).__name__})",
                found="hooks on it",
                remedy="remove them before voxload.engine.shard, and register them on its result",
            )


def _refuse_own_calls(model: nn.Module) -> None:
    """Raise UsageError for modules that do more, when they are called, than the ``forward`` of their class says."""
    for name, module in model.named_modules():
        kind = type(module)
        own = "__call__" if kind.__call__ is not nn.Module.__call__ and not isinstance(module, fx.GraphModule) else None
        if is_library(kind):  # it is taken for what its class is
            own = own or next((each for each in vars(module) if inspect.isfunction(getattr(kind, each, None))), None)
        if own is not None:
            raise UsageError(
                f"layer {name or 'at the root'!r} ({kind.__name__})",
                found=f"a {own} of its own",
                remedy="do in forward, of a class of its own, what it does",
            )


def _require_one_argument(model: nn.Module) -> None:
    """Raise UsageError unless ``forward`` takes the volume and nothing else."""
    taken = list(inspect.signature(model.forward).parameters.values())
    if len(taken) != 1 or taken[0].kind not in {taken[0].POSITIONAL_ONLY, taken[0].POSITIONAL_OR_KEYWORD}:
        raise UsageError(
            f"forward of {type(model).__name__}",
            found=f"arguments ({', '.join(str(argument) for argument in taken)})",
            expected="one argument, the volume",
            remedy="wrap the model in a module whose forward takes the volume alone",
        )


def _untraceable(model: nn.Module, error: Exception) -> UsageError:
    """Return the refusal of a ``forward`` on which the trace failed."""
    reason = " ".join(str(error).split())
    return UsageError(
        f"forward of {type(model).__name__}",
        found=f"operations that depend on values or shapes of the volume ({type(error).__name__}: {reason})",
        expected="the same operations in the same order for every volume",
    )
